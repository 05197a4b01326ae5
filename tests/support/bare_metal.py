"""A real Ironic of a test's own: API and conductor in one service, on SQLite, with fake and Redfish hardware.

It needs ``.ironic-venv`` (``tools/setup.sh ironic``); a missing one is an error, for a skipped test proves nothing.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import urllib3

from tests import ROOT
from tests.support.daemons import MissingServerError
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, signal_tree, until
from tests.support.servers import made_once

_BIN: Final = ROOT / ".ironic-venv" / "bin"
PYTHON: Final = _BIN / "python"
_START_SECONDS: Final = 120.0
_SETTINGS: Final = """\
[DEFAULT]
auth_strategy = {auth}
log_file = {directory}/ironic-service.log
rpc_transport = none
state_path = {directory}
host = conductor-of-the-tests
my_ip = 127.0.0.1
enabled_hardware_types = fake-hardware,redfish
enabled_bios_interfaces = no-bios,fake
enabled_boot_interfaces = fake,redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = fake,direct
enabled_firmware_interfaces = no-firmware,fake
enabled_inspect_interfaces = no-inspect,fake
enabled_management_interfaces = fake,redfish
enabled_network_interfaces = noop
enabled_power_interfaces = fake,redfish
enabled_raid_interfaces = no-raid,fake
enabled_rescue_interfaces = no-rescue,fake
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor,fake,redfish
default_network_interface = noop
[api]
host_ip = 127.0.0.1
port = {port}
[database]
connection = sqlite:///{directory}/ironic.db
[conductor]
automated_clean = false
node_locked_retry_attempts = 1
[json_rpc]
auth_strategy = noauth
{extra}"""


class Ironic(Played):
    """``url`` is the Bare Metal API's root; ``call`` acts on it as an operator does.

    ``extra``: more lines of its configuration, which win. ``packages``: a directory with more packages for it. ``ca``:
    it serves TLS, with a certificate of this authority.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keystone: str = "",
        extra: str = "",
        packages: Path | None = None,
        headers: dict[str, str] | None = None,
        ca: Path | None = None,
    ) -> None:
        if not (_BIN / "ironic").exists():
            raise MissingServerError("the tests need OpenStack Ironic in .ironic-venv; run: tools/setup.sh ironic")
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"{'https' if ca else 'http'}://127.0.0.1:{self.port}"
        self._headers = {"X-OpenStack-Ironic-API-Version": "1.96", **(headers or {})}
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE, maxsize=8, ca_certs=str(ca) if ca else None)
        config = directory / "ironic.conf"
        config.write_text(
            _SETTINGS.format(
                auth="keystone" if keystone else "noauth", directory=directory, port=self.port, extra=keystone + extra
            )
        )
        shutil.copyfile(made_once("ironic.db", _create_schema), directory / "ironic.db")
        environment = ["env", f"PYTHONPATH={packages}"] if packages else []
        super().__init__("ironic", directory, [*environment, str(_BIN / "ironic"), "--config-file", str(config)])

    def wait_answers(self) -> None:
        """Return when it serves, with its conductor."""
        self.wait_until(self._serves, seconds=_START_SECONDS)

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Give its database, beneath its feet; what is done there is one transaction."""
        with closing(sqlite3.connect(self.log.parent / "ironic.db", timeout=PATIENCE)) as connection, connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def log_in(self, token: str) -> None:
        """Use this token of Keystone's from now on."""
        self._headers["X-Auth-Token"] = token

    def kill_all(self) -> None:
        """SIGKILL to all its processes at once."""
        signal_tree(self.pid, signal.SIGKILL)
        self.process.wait()

    def _serves(self) -> bool:
        try:
            return bool(self.call("GET", "/v1/drivers")["drivers"])
        except (urllib3.exceptions.HTTPError, AssertionError):
            return False

    def answer(self, method: str, path: str, body: Any = None, *, version: str = "") -> tuple[int, Any]:
        """Return status and document of one call; ``version`` is another microversion."""
        headers = self._headers | ({"X-OpenStack-Ironic-API-Version": version} if version else {})
        given = self._http.request(method, self.url + path, json=body, headers=headers)
        return given.status, json.loads(given.data) if given.data else None

    def call(self, method: str, path: str, body: Any = None, *, version: str = "") -> Any:
        """Return the document of a call that succeeds, as soon as nobody else has locked the node."""
        answers = []

        def unlocked() -> bool:
            answers.append(self.answer(method, path, body, version=version))
            return "is locked by host" not in str(answers[-1][1])

        until(unlocked)
        status, found = answers[-1]
        assert status < 300, (method, path, status, found)
        return found

    def enroll(self, name: str, *macs: str, driver: str = "fake-hardware", **fields: Any) -> str:
        """Enroll a node with ports, and bring it to manageable; return its UUID."""
        uuid = str(self.call("POST", "/v1/nodes", {"name": name, "driver": driver, **fields})["uuid"])
        for mac in macs:
            self.call("POST", "/v1/ports", {"node_uuid": uuid, "address": mac})
        self.provision(uuid, "manage", "manageable")
        return uuid

    def provision(self, uuid: str, verb: str, state: str) -> None:
        """Send a verb, and wait for the state to which it leads."""
        self.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": verb})
        assert until(lambda: self.node(uuid)["provision_state"] == state), self.node(uuid)["last_error"]

    def node(self, ident: str) -> Any:
        return self.call("GET", f"/v1/nodes/{ident}")

    def ports(self, uuid: str) -> list[Any]:
        """Return the node's ports, by MAC."""
        found: list[Any] = self.call("GET", f"/v1/ports/detail?node={uuid}")["ports"]
        return sorted(found, key=lambda port: str(port["address"]))


def _create_schema(path: Path) -> None:
    """Make an SQLite database as Ironic's own tool does."""
    config = path.with_suffix(".conf")
    config.write_text(f"[database]\nconnection = sqlite:///{path}\n")
    command = [str(_BIN / "ironic-dbsync"), "--config-file", str(config), "create_schema"]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def ironic(directory: Path, *, kind: type[Ironic] = Ironic, **options: Any) -> Iterator[Ironic]:
    """Run one until the end of the block."""
    running = kind(directory, **options)
    try:
        running.wait_answers()
        yield running
    finally:
        running.end()
