"""Secrets are planted wherever the service gets one, and must not be found wherever it writes or answers."""

from __future__ import annotations

import base64
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
from tests.support.processes import PATIENCE, free_port, tree, until

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
    "registry": "canary-registry-7c2d",
    "keystone": "canary-keystone-password-20b8",
    "application": "canary-application-credential-4ad0",
    "inspector": "canary-inspector-database-66d1",
    "htpasswd": "canary-htpasswd-e1f7",
    "key_file": new_key(),
    # What the service itself makes: only who may have it is told.
    "lease": "",
    "access_token": "",
    "callback": "",
    "agent": "",
    "simulated": "",
}
_ISSUED: Final = [name for name, value in CANARIES.items() if not value]
_OF_NODES: Final = ("redfish_password", "ipmi_password", "ipmi_hex_kg_key", "bmc_password", "instance_info", "rotated")

_CONFIGURED: Final = ("s3", "swift", "registry", "keystone", "application", "inspector")

_CONFIGURATION: Final = """
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
auth_strategy = http_basic
http_basic_auth_user_file = {directory}/users
[database]
connection = {database}
[drivers]
bmc_networks = 127.0.0.0/8
enabled = redfish,ipmi,sim,fake-hardware
command_timeout = 2
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
[registry]
url = http://ironic:{registry}@127.0.0.1:9
[keystone_authtoken]
auth_url = http://127.0.0.1:9/v3
username = u
password = {keystone}
application_credential_secret = {application}
[inspector]
callback_secret = required
callback_endpoint_override = http://127.0.0.1:{port}
[boot]
machine_script_url = http://127.0.0.1:{port}/v1/boot.ipxe
[audit]
log_file = {directory}/audit.log
[pxe_filter]
network = canaries-{port}
backends = dnsmasq
dhcp_hostsdir = {directory}/hosts
inspector_connection = postgresql://inspector:{inspector}@127.0.0.1:9/inspector
"""


class Site:
    """``ferroscope all`` with canaries, and everything that it says."""

    def __init__(self, directory: Path, database: str, *, encrypted: bool) -> None:
        self.directory, self.database, self.port = directory, database, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        CANARIES.update(dict.fromkeys(_ISSUED, ""))  # those of another site
        self.outputs: dict[str, str] = {}
        self._calls = 0
        for name in ("bmc", "hosts"):
            (directory / name).mkdir()
        (directory / "bmc" / "rack1").write_text(CANARIES["referenced"])
        keys = directory / "keys"
        keys.write_text(f"{CANARIES['key_file']}\n")
        keys.chmod(0o600)
        file = directory / "ferroscope.conf"
        file.write_text(
            _CONFIGURATION.format(
                port=self.port, database=_with_password(database), keys=keys if encrypted else "", directory=directory,
                **{name: CANARIES[name] for name in _CONFIGURED},
            )
        )  # fmt: skip
        file.chmod(0o600)
        self.configuration = ("-c", str(file))
        self._password = directory / "password"
        self._password.write_text(CANARIES["htpasswd"])
        users = directory / "users"
        self.run("user", "add", "root", "--role", "admin", "--file", str(users), given=CANARIES["htpasswd"])
        self.outputs["users"] = users.read_text()
        command = [sys.executable, "-m", "ferroscope", "all", "-c", str(file)]
        self.service = Played("service", directory, command)
        self.others: list[Played] = []
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self.service.wait_ready()
        self._watcher.start()

    def _watch(self) -> None:
        """Note what every user of the host can see of the service, and what its children inherit."""
        while not self._over.wait(0.02):
            mine = {one.pid for one in (self.service, *self.others)}
            for pid in [pid for one in mine for pid in tree(one)]:
                for name in ("cmdline",) if pid in mine else ("cmdline", "environ"):
                    try:
                        seen = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
                    except OSError:
                        continue
                    self.outputs[f"{name} of {seen[:40]!r}"] = seen

    def play(self, name: str, *words: str) -> Played:
        """Run another of our commands until the end."""
        login = ("FERROSCOPE_USERNAME=root", f"FERROSCOPE_PASSWORD_FILE={self._password}")
        command = ["env", *login, sys.executable, "-m", "ferroscope", "--debug", *words]
        self.others.append(Played(name, self.directory, command))
        return self.others[-1]

    def call(self, method: str, path: str, body: Any = None, *, tells: bool = False) -> Any:
        """Return the answer; ``tells``: it shall tell a secret."""
        headers = {"X-OpenStack-Ironic-API-Version": "1.96", "Content-Type": "application/json"} | self._login()
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as exc:
            raw = exc.read()
        if not tells:
            self.outputs[f"answer to {method} {path}"] = raw.decode(errors="replace")
        return json.loads(raw) if raw[:1] in b"{[" and raw else raw.decode(errors="replace")

    def _login(self) -> dict[str, str]:
        """Return the token, once there is one, in every other call; else name and password."""
        self._calls += 1
        if self._calls % 2 and CANARIES["access_token"]:
            return {"X-Auth-Token": CANARIES["access_token"]}
        pair = base64.b64encode(f"root:{CANARIES['htpasswd']}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def run(self, *words: str, given: str = "", tells: bool = False) -> str:
        """Run our command line; ``tells``: it shall tell a secret."""
        command = [sys.executable, "-m", "ferroscope", "--debug", *words]
        login = {"FERROSCOPE_USERNAME": "root", "FERROSCOPE_PASSWORD_FILE": str(self._password)}
        environment = {**os.environ, "FERROSCOPE_URL": self.url, "NO_COLOR": "1", **login}
        done = subprocess.run(
            command, env=environment, input=given, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        if not tells:
            self.outputs[" ".join(words)] = done.stdout + done.stderr
        return done.stdout

    def stop(self) -> None:
        for one in (*self.others, self.service):
            one.stop()
        self._over.set()
        for file in (*self.directory.glob("*.log"), *(self.directory / "hosts").iterdir()):
            self.outputs[file.name] = file.read_text(errors="replace")

    def end(self) -> None:
        self._over.set()
        for one in (*self.others, self.service):
            one.end()

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
    CANARIES["lease"] = site.call("POST", "/v1/leases/canary", {"holder": "h", "duration": 600}, tells=True)["token"]
    words = ("token", "create", "robot", "--role", "admin", "-o", "json", *site.configuration)
    CANARIES["access_token"] = json.loads(site.run(*words, tells=True))["token"]
    _inspect(site)


def _inspect(site: Site) -> None:
    """Have a machine inspected that proves itself by the secret of its inspection and by its agent token."""
    mac = "52:54:00:ca:4a:17"
    node = site.call("POST", "/v1/nodes", {"driver": "fake-hardware", "name": "booted"})["uuid"]
    site.call("POST", "/v1/ports", {"node_uuid": node, "address": mac})
    for target, state in (("manage", "manageable"), ("inspect", "inspect wait")):
        site.call("PUT", f"/v1/nodes/{node}/states/provision", {"target": target})
        assert until(lambda: site.call("GET", f"/v1/nodes/{node}")["provision_state"] == state)  # noqa: B023
    script = site.call("GET", f"/v1/boot.ipxe?mac={mac}", tells=True)
    for name, variable in (("callback", "secret"), ("agent", "token")):
        CANARIES[name] = script.split(f"set {variable} ")[1].split()[0]
    # The script has delivered it; whoever only knows the MAC address does not get it.
    assert site.call("GET", f"/v1/lookup?addresses={mac}")["config"]["agent_token"] == "******"
    heartbeat = {"callback_url": "http://127.0.0.1:9", "agent_version": "9", "agent_token": CANARIES["agent"]}
    site.call("POST", f"/v1/heartbeat/{node}", heartbeat)
    site.call("POST", f"/v1/heartbeat/{node}", heartbeat | {"agent_token": f"{CANARIES['agent']}x"})
    interface = {"name": "eth0", "mac_address": mac, "ipv4_address": "192.0.2.7", "has_carrier": True}
    inventory = {"interfaces": [interface], "memory": {"physical_mb": 1024}, "cpu": {"count": 1, "architecture": "x"}}
    body = {"inventory": inventory | {"bmc_address": "192.0.2.9", "disks": []}}
    site.call("POST", "/v1/continue_inspection?secret=wrong", body)
    site.call("POST", f"/v1/continue_inspection?secret={CANARIES['callback']}", body, tells=True)
    assert until(lambda: site.call("GET", f"/v1/nodes/{node}")["provision_state"] == "manageable")


def _ask(site: Site) -> None:
    """Call everything that answers: the API's GET routes, and the command line."""
    for route in ROUTES:
        for node in ("redfish", "booted") if route.method == "GET" else ():
            path = route.path.replace("{node}", node).replace("{name}", "other").replace("{driver}", "ipmi")
            site.call("GET", path)
    site.call("GET", "/v1/nodes/detail")
    site.call("PATCH", "/v1/nodes/ipmi", [{"op": "test", "path": "/driver_info/ipmi_password", "value": "x"}])
    site.call("PATCH", "/v1/nodes/ipmi", [{"op": "add", "path": "/driver_info/ipmi_address", "value": "192.0.2.1"}])
    kept = str(site.directory / "kept.json")
    for words in (
        ("status",), ("status", "-o", "json"), ("node", "list"), ("node", "list", "-o", "json"), ("audit",),
        ("audit", "-o", "json"),
        ("node", "show", "redfish"), ("node", "show", "redfish", "-o", "json"), ("node", "show", "booted"),
        ("node", "timeline", "ipmi"), ("node", "timeline", "booted"), ("node", "inbox"), ("driver", "list"),
        ("node", "set", "ipmi", "--driver-info", "ipmi_port=nonsense"), ("node", "show", "nobody"),
        ("search", "cpus>0"),
        ("inventory", "show", "booted"), ("inventory", "save", "booted", kept), ("inspect", "ipmi"), ("rule", "list"),
    ):  # fmt: skip
        site.run(*words)
    for words in (
        ("doctor",), ("doctor", "-o", "json"), ("db", "current"), ("db", "rekey"), ("token", "list"),
        ("db", "move-data", "--from", "database", "--to", "s3"),
        ("db", "move-data", "--from", "swift", "--to", "database"),
        ("user", "list"), ("policy", "list"), ("pxe", "config"), ("token", "create", "robot"),
    ):  # fmt: skip
        site.run(*words, *site.configuration)
    wrong = site.directory / "wrong.conf"
    text = Path(site.configuration[1]).read_text()
    for number, (old, new) in enumerate((("bucket = b", "bucket b"), ("command_timeout = 2", "command_timeout = x"))):
        wrong.write_text(text.replace(old, new))
        site.outputs[f"wrong configuration {number}"] = site.run("doctor", "-c", str(wrong), "-o", "json")


def _simulate(site: Site) -> None:
    """Run the PXE filter, and the simulator, which logs in and whose machine loads the secret of its inspection."""
    pxe_filter = site.play("pxe-filter", "pxe-filter", *site.configuration)
    pxe_filter.wait_ready("open")
    name = "sim-canary"
    words = ("--special", name, "--port", "0", "--api", site.url, "--enroll", "--boot-scripts", "--boot-delay", "5")
    site.play("sim", "sim", *words, "-o", "json").wait_ready("enrolled")
    state = lambda: site.call("GET", f"/v1/nodes/{name}")["provision_state"]  # noqa: E731
    site.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
    assert until(lambda: state() == "inspect wait")
    (port,) = site.call("GET", f"/v1/nodes/{name}/ports")["ports"]
    script = site.call("GET", f"/v1/boot.ipxe?mac={port['address']}", tells=True)
    CANARIES["simulated"] = script.split("set secret ")[1].strip()
    assert until(lambda: state() == "manageable")


@pytest.fixture
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    database, encrypted = request.param
    site = Site(tmp_path, request.getfixturevalue(f"{database}_url"), encrypted=encrypted)
    try:
        site.start()
        _plant(site)
        if encrypted:
            _ask(site)
            _simulate(site)
        site.stop()
        site.outputs |= {file.name: file.read_text() for file in tmp_path.glob("kept.json")}
        yield site
    finally:
        site.end()


def found(texts: dict[str, str]) -> set[tuple[str, str]]:
    """Return which canary was found where."""
    planted = [(name, value) for name, value in CANARIES.items() if value]
    return {(name, where) for where, said in texts.items() for name, value in planted if value in said}


@pytest.mark.parametrize(
    "played",
    [
        pytest.param(("postgresql", True), id="postgresql"),
        pytest.param(("sqlite", True), id="sqlite"),
        pytest.param(("mariadb", True), id="mariadb"),
    ],
    indirect=True,
)
def test_no_secret_is_found_in_database_log_answers_commands_or_the_process_list(played: Site) -> None:
    assert all(CANARIES.values())
    assert any(name.startswith("cmdline") and "ipmitool" in name for name in played.outputs)
    assert "******" in played.outputs["answer to GET /v1/nodes/redfish"]
    assert {"pxe-filter.log", "sim.log"} <= played.outputs.keys()
    assert found(played.outputs) == set()
    assert found({"database": played.dump()}) == set()


@pytest.mark.parametrize("played", [("sqlite", False)], indirect=True, ids=["plain"])
def test_what_is_not_encrypted_is_found(played: Site) -> None:
    assert found(played.outputs) == set()
    assert {name for name, _ in found({"database": played.dump()})} == set(_OF_NODES)
    assert found({"log": f"x{CANARIES['s3']}y"}) == {("s3", "log")}
