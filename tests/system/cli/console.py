"""The command line as a script uses it: arguments in, output and exit code out, no terminal."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from ferroscope_client.cli.main import main
from tests.fast.cli.running import NO_CREDENTIALS


class Shell:
    """Runs commands in this process against the service at ``url``, with no variables of ours but ``environment``."""

    def __init__(self, url: str, **environment: str) -> None:
        self.url = url
        self._environment = {**NO_CREDENTIALS, "FERROSCOPE_URL": url, **environment}

    def __call__(self, *arguments: str, check: int | None = None, stdin: str | None = None) -> Result:
        """Run a command; ``check`` is the exit code that it must have."""
        result = CliRunner().invoke(main, list(arguments), env=self._environment, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if check is not None:
            assert result.exit_code == check, result.output
        return result

    def json(self, *arguments: str, check: int = 0) -> Any:
        """Run a command and return what it prints as JSON, all of its standard output."""
        return json.loads(self(*arguments, "-o", "json", check=check).stdout)

    def lines(self, *arguments: str, check: int = 0) -> list[str]:
        """Run a command and return the lines that it prints for people."""
        return self(*arguments, check=check).stdout.splitlines()
