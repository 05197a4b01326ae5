"""A real ironic-inspector of a test's own, on SQLite, which stores what it finds out in its database.

It needs ``.inspector-venv`` (``tools/setup.sh inspector``); a missing one is an error.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import urllib3

from tests import ROOT
from tests.support.daemons import MissingServerError
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, until

_BIN: Final = ROOT / ".inspector-venv" / "bin"
_HTTP: Final = urllib3.PoolManager(retries=False, timeout=PATIENCE)
_INSPECTOR: Final = """\
[DEFAULT]
auth_strategy = noauth
listen_address = 127.0.0.1
listen_port = {port}
standalone = true
transport_url = fake://
introspection_delay = 0
[database]
connection = sqlite:///{directory}/inspector.db
[ironic]
auth_type = none
endpoint_override = {ironic}
[pxe_filter]
driver = noop
[processing]
store_data = database
"""


class Inspector(Played):
    """ironic-inspector with the nodes of the Bare Metal API at ``ironic``; it pauses between no two starts."""

    def __init__(self, directory: Path, ironic: str) -> None:
        program = _BIN / "ironic-inspector"
        if not program.exists():
            raise MissingServerError(
                "the tests need ironic-inspector in .inspector-venv; run: tools/setup.sh inspector"
            )
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.conf = directory / "inspector.conf"
        self.conf.write_text(_INSPECTOR.format(port=self.port, directory=directory, ironic=ironic))
        sync = [str(_BIN / "python"), str(_BIN / "ironic-inspector-dbsync"), "--config-file", str(self.conf), "upgrade"]
        subprocess.run(sync, check=True, capture_output=True)
        super().__init__("inspector", directory, [str(_BIN / "python"), str(program), "--config-file", str(self.conf)])

    def wait_answers(self) -> None:
        self.wait_until(self.answers)

    def answers(self) -> bool:
        try:
            return _HTTP.request("GET", self.url, timeout=10.0).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def status(self, uuid: str) -> Any:
        return _HTTP.request("GET", f"{self.url}/v1/introspection/{uuid}").json()

    def start_introspection(self, uuid: str) -> None:
        answer = _HTTP.request("POST", f"{self.url}/v1/introspection/{uuid}")
        assert answer.status == 202, answer.data
        assert until(lambda: self.status(uuid)["state"] == "waiting"), self.status(uuid)
