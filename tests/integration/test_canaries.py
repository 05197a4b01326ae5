"""Secrets are planted wherever the service gets one, and must not be found wherever it writes or answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import make_url, text

from ferroscope.api.routes import ROUTES
from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine
from ferroscope.db.schema import metadata
from ferroscope.secrets.keys import new_key
from tests.support.installation import Played
from tests.support.processes import free_port, tree, until

# Where a secret is planted -> the secret. The key of ``driver_info`` decides what is one; a new kind of secret that the
# service gets is a line here, and is planted in ``_plant`` or in the configuration.
CANARIES: Final = {
    "redfish_password": "canary-redfish-01d9",
    "ipmi_password": "canary-ipmi-77",
    "ipmi_hex_kg_key": "63616e6172796b6579",
    "bmc_password": "canary-sim-4be1",
    "instance_info": "canary-instance-90a2",
    "rotated": "canary-rotated-3c11",
    "referenced": "canary-file-e8d4",
    "database": "canary-database-b6f0",
    "s3": "canary-s3-secret-5a5a",
    "swift": "canary-swift-password-11f2",
    "lease": "",  # its token, which only the holder sees
    "key_file": new_key(),
}
# In the database: stored for comparison in every statement of the holder, and useless once the lease has ended.
_IN_DATABASE: Final = {"lease"}
_OF_NODES: Final = ("redfish_password", "ipmi_password", "ipmi_hex_kg_key", "bmc_password", "instance_info", "rotated")

_CONFIGURATION: Final = """
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
[database]
connection = {database}
[drivers]
enabled = redfish,ipmi,sim
command_timeout = 2
command_tries = 1
[worker]
max_attempts = 1
[log]
level = debug
access = true
[s3]
endpoint = http://127.0.0.1:9
bucket = b
access_key = a
secret_key = {s3}
[swift]
auth_url = http://127.0.0.1:9/v3
username = u
password = {swift}
project_name = p
[secrets]
key_file = {keys}
sources = file
file_directory = {directory}/bmc
[audit]
log_file = {directory}/audit.log
"""


class Site:
    """``ferroscope all`` with canaries, and everything that it says."""

    def __init__(self, directory: Path, database: str, *, encrypted: bool) -> None:
        self.directory, self.database, self.port = directory, database, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.said: dict[str, str] = {}
        (directory / "bmc").mkdir()
        (directory / "bmc" / "rack1").write_text(CANARIES["referenced"])
        keys = directory / "keys"
        keys.write_text(f"{CANARIES['key_file']}\n")
        keys.chmod(0o600)
        file = directory / "ferroscope.conf"
        file.write_text(
            _CONFIGURATION.format(
                port=self.port, database=_with_password(database), s3=CANARIES["s3"], swift=CANARIES["swift"],
                keys=keys if encrypted else "", directory=directory,
            )
        )  # fmt: skip
        file.chmod(0o600)
        command = [sys.executable, "-m", "ferroscope", "all", "-c", str(file)]
        self.service = Played("service", directory, command)
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self.service.wait_ready()
        self._watcher.start()

    def _watch(self) -> None:
        """Note what every user of the host can see of the service, and what its children inherit."""
        while not self._over.wait(0.005):
            for pid in tree(self.service.pid):
                for name in ("cmdline",) if pid == self.service.pid else ("cmdline", "environ"):
                    try:
                        seen = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
                    except OSError:
                        continue
                    self.said[f"{name} of {seen[:40]!r}"] = seen

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"X-OpenStack-Ironic-API-Version": "1.95", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as exc:
            raw = exc.read()
        if not path.startswith("/v1/leases/"):  # what the holder of a lease is told
            self.said[f"answer to {method} {path}"] = raw.decode(errors="replace")
        return json.loads(raw) if raw[:1] in b"{[" and raw else raw.decode(errors="replace")

    def run(self, *words: str) -> None:
        command = [sys.executable, "-m", "ferroscope", *words]
        environment = {**os.environ, "FERROSCOPE_URL": self.url}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        self.said[" ".join(words)] = done.stdout + done.stderr

    def stop(self) -> None:
        self._over.set()
        self.service.stop()
        for file in (self.service.log, self.directory / "audit.log"):
            self.said[file.name] = file.read_text(errors="replace")

    def dump(self) -> str:
        """Return all rows of the database."""
        engine = build_engine(DatabaseSettings(connection=self.database))
        with engine.connect() as connection:
            rows = [str(row) for table in metadata.sorted_tables for row in connection.execute(table.select())]
            assert connection.execute(text("SELECT COUNT(*) FROM nodes")).scalar_one()
        engine.dispose()
        return "\n".join(rows)


def _with_password(url: str) -> str:
    """Return the URL with a canary as the password; the private servers of the tests accept any, or none is used."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql":
        return url
    return parsed.set(password=CANARIES["database"]).render_as_string(hide_password=False)


def _plant(site: Site) -> None:
    """Give the service all secrets, and have it use and show them."""
    dead = free_port()
    infos = {
        "redfish": {"redfish_address": f"https://127.0.0.1:{dead}", "redfish_username": "root"},
        "ipmi": {"ipmi_address": "127.0.0.1", "ipmi_port": dead, "ipmi_username": "root"},
        "sim": {"sim_address": f"127.0.0.1:{dead}", "sim_node": "n"},
    }
    for driver, keys in (
        ("redfish", ["redfish_password"]),
        ("ipmi", ["ipmi_password", "ipmi_hex_kg_key"]),
        ("sim", []),
    ):
        info = infos[driver] | {key: CANARIES[key] for key in (*keys, "bmc_password")}
        body = {"driver": driver, "name": driver, "driver_info": info}
        site.call("POST", "/v1/nodes", body | {"instance_info": {"admin_password": CANARIES["instance_info"]}})
    referenced = infos["redfish"] | {"redfish_password": "secret://file/rack1"}
    site.call("POST", "/v1/nodes", {"driver": "redfish", "name": "referenced", "driver_info": referenced})
    rotated = [{"op": "add", "path": "/driver_info/bmc_password", "value": CANARIES["rotated"]}]
    site.call("PATCH", "/v1/nodes/sim", rotated)
    names = ("redfish", "ipmi", "sim", "referenced")
    for name in names:
        site.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "manage"})
    assert until(lambda: all(site.call("GET", f"/v1/nodes/{name}")["last_error"] for name in names))
    CANARIES["lease"] = site.call("POST", "/v1/leases/canary", {"holder": "h", "duration": 600})["token"]


def _ask(site: Site) -> None:
    """Call everything that answers: the API's GET routes, and the command line."""
    for route in ROUTES:
        if route.method == "GET":
            path = route.path.replace("{node}", "redfish").replace("{name}", "canary").replace("{driver}", "ipmi")
            site.call("GET", path if not path.startswith("/v1/leases/") else "/v1/leases")
    site.call("GET", "/v1/nodes/detail")
    site.call("PATCH", "/v1/nodes/ipmi", [{"op": "test", "path": "/driver_info/ipmi_password", "value": "x"}])
    site.call("PATCH", "/v1/nodes/ipmi", [{"op": "add", "path": "/driver_info/ipmi_address", "value": "192.0.2.1"}])
    configuration = ("-c", str(site.directory / "ferroscope.conf"))
    for words in (
        ("doctor", *configuration), ("status",), ("node", "show", "redfish", "-o", "json"), ("audit", "-o", "json"),
        ("node", "timeline", "ipmi"), ("db", "current", *configuration),
    ):  # fmt: skip
        site.run(*words)


@pytest.fixture
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    database, encrypted = request.param
    site = Site(tmp_path, request.getfixturevalue(f"{database}_url"), encrypted=encrypted)
    try:
        site.start()
        _plant(site)
        if encrypted:
            _ask(site)
        site.stop()
        yield site
    finally:
        site._over.set()
        site.service.end()


def found(texts: dict[str, str]) -> set[tuple[str, str]]:
    """Return which canary was found where."""
    return {(name, where) for where, said in texts.items() for name, value in CANARIES.items() if value in said}


@pytest.mark.parametrize(
    "played",
    [
        pytest.param(("postgresql", True), id="postgresql"),
        pytest.param(("sqlite", True), id="sqlite", marks=pytest.mark.exhaustive),
        pytest.param(("mariadb", True), id="mariadb", marks=pytest.mark.exhaustive),
    ],
    indirect=True,
)
def test_no_secret_is_found_in_database_log_answers_commands_or_the_process_list(played: Site) -> None:
    assert all(CANARIES.values())
    assert any(name.startswith("cmdline") and "ipmitool" in name for name in played.said)
    assert "******" in played.said["answer to GET /v1/nodes/redfish"]
    assert found(played.said) == set()
    assert {name for name, _ in found({"database": played.dump()})} <= _IN_DATABASE


@pytest.mark.parametrize("played", [("sqlite", False)], indirect=True, ids=["plain"])
def test_what_is_not_encrypted_is_found(played: Site) -> None:
    assert found(played.said) == set()
    assert {name for name, _ in found({"database": played.dump()})} == {*_OF_NODES, "lease"}
    assert found({"log": f"x{CANARIES['s3']}y"}) == {("s3", "log")}
