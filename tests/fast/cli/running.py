"""Run a command of ``ferroscope`` in this process, as a script would: no terminal, no environment of ours."""

from __future__ import annotations

from typing import Final

from click.testing import CliRunner, Result

from ferroscope_client.cli.main import main

NO_CREDENTIALS: Final[dict[str, str | None]] = {
    **dict.fromkeys(
        (
            "FERROSCOPE_CACERT",
            "FERROSCOPE_INSECURE_HTTP",
            "FERROSCOPE_PASSWORD",
            "FERROSCOPE_PASSWORD_FILE",
            "FERROSCOPE_TOKEN",
            "FERROSCOPE_TOKEN_FILE",
            "FERROSCOPE_USERNAME",
            "OS_CLOUD",
        )
    ),
    "XDG_CONFIG_HOME": "/nonexistent",
}
"""Hides what the person has who runs the tests."""


def run(*arguments: str, **environment: str | None) -> Result:
    """Return how the command ended; an exception that is not an answer to the user is raised."""
    result = CliRunner().invoke(main, list(arguments), env={**NO_CREDENTIALS, "FERROSCOPE_URL": None, **environment})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
