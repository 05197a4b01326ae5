"""Commands of ``ferroscope`` on the API in this process: everything but the socket is what is shipped."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from ferroscope_client.cli import output
from ferroscope_client.cli.main import main
from ferroscope_client.client import Client
from tests.api.service import Service


class _Answer:
    def __init__(self, result: Any) -> None:
        self.status, self.reason = result.status_code, ""
        self.data, self.headers = result.content, result.headers


class _InProcess(Client):
    def __init__(self, service: Service) -> None:
        super().__init__("http://localhost:6385", patience=0.0)
        self._service = service

    def _exchange(self, method: str, target: str, content: bytes | None, key: str) -> _Answer:
        return _Answer(
            self._service.bare_metal.call(method, target, content, headers={"Content-Type": "application/json"})
        )


class Commands:
    """Runs commands without a terminal, as a script would."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(output, "connect", lambda *_, **__: _InProcess(service))

    def __call__(self, *words: str) -> Result:
        result = CliRunner().invoke(main, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result
