"""The real service as one process on SQLite, for tests of what meets it from outside."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.installation import configuration, running
from tests.support.processes import PATIENCE, free_port

_CONFIGURATION = """
[worker]
threads = 8
[inspector]
timeout = 6
timeout_period = 0.5
[drivers]
enabled = sim,fake-hardware
command_timeout = 0.5
power_timeout = 2
"""


class Api:
    """The Bare Metal API of a service, at ``url``."""

    version = "1.80"

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer's document; raise ``urllib.error.HTTPError`` for what is not 2xx."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "X-OpenStack-Ironic-API-Version": self.version},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/v1/nodes/{name}")
        return found

    def answers(self) -> bool:
        try:
            self.call("GET", "/v1/")
        except OSError:
            return False
        return True


@contextmanager
def service(directory: Path, more: str = "", *, port: int = 0) -> Iterator[Api]:
    """Run ``ferroscope all`` in ``directory`` until the end of the block; ``more`` configuration wins."""
    port = port or free_port()
    file = directory / "ferroscope.conf"
    file.write_text(configuration(directory, port, _CONFIGURATION + more))
    command = [sys.executable, "-c", "from ferroscope_client.cli.main import main; main()", "all", "-c", str(file)]
    api = Api(f"http://127.0.0.1:{port}")
    with running("service", directory, command, api.answers) as process:
        try:
            yield api
        finally:
            process.stop()
