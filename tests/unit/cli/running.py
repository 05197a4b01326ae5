"""Run a command of ``ferroscope`` in this process, as a script would: no terminal, no environment of ours."""

from __future__ import annotations

from click.testing import CliRunner, Result

from ferroscope.cli.main import main


def run(*arguments: str, **environment: str | None) -> Result:
    """Return how the command ended; an exception that is not an answer to the user is raised."""
    result = CliRunner().invoke(main, list(arguments), env={"FERROSCOPE_URL": None, **environment})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
