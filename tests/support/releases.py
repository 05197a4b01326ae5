"""A service whose processes may be of two releases, on one database; and releases as their users install them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import text

import ferroscope
from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine
from tests import ROOT
from tests.support import examples
from tests.support.databases import opened
from tests.support.installation import Played, configuration
from tests.support.processes import PATIENCE, free_port, until

# The commits of releases that have no tag.
_UNTAGGED: Final = {"1.0.0rc1": "ca2eeab5"}
_MORE: Final = "[drivers]\nenabled = fake-hardware\n[worker]\nthreads = 2\n"


class Site:
    """One database, this release's service, and processes of the release before, whose command is ``before``.

    ``within`` precedes all their commands: what starts them where they shall run.
    """

    def __init__(
        self, directory: Path, url: str, before: list[str] | None = None, *, within: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.before = before or []
        self._within = within
        self.port = free_port()
        self.engine = build_engine(DatabaseSettings(connection=url))
        self.played: list[Played] = []
        self.conf = directory / "f.conf"
        self.conf.write_text(configuration(directory, self.port, _MORE, database=url))

    def old(self, name: str, *arguments: str) -> Played:
        return self._play(name, [*self.before, *arguments, "-c", str(self.conf)])

    def new(self, name: str, *arguments: str) -> Played:
        return self._play(name, [sys.executable, "-m", "ferroscope", *arguments, "-c", str(self.conf)])

    def upgrade(self, done: Played) -> None:
        assert done.process.wait(PATIENCE) == 0, done.output()

    def ask(self, statement: str) -> list[Any]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"X-OpenStack-Ironic-API-Version": "1.96", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=content, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return msgspec.json.decode(answer.read() or b"null")

    def close(self) -> None:
        for one in self.played:
            one.end()
        self.engine.dispose()

    def states(self) -> dict[str, str]:
        nodes = self.call("GET", "/v1/nodes?fields=name,provision_state")["nodes"]
        return {node["name"]: node["provision_state"] for node in nodes}

    def reach(self, names: list[str], state: str) -> None:
        wanted = dict.fromkeys(names, state)
        assert until(lambda: wanted.items() <= self.states().items()), self.states()

    def enroll(self, names: list[str]) -> dict[str, str]:
        """Enroll nodes, each with one NIC; return their MAC addresses when they are manageable."""
        macs = {name: examples.mac() for name in names}
        for name, mac in macs.items():
            node = self.call("POST", "/v1/nodes", {"name": name, "driver": "fake-hardware"})
            self.call("POST", "/v1/ports", {"node_uuid": node["uuid"], "address": mac})
            self.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "manage"})
        self.reach(names, "manageable")
        return macs

    def begin(self, names: list[str]) -> None:
        """Have them inspected; their machines do not call back yet."""
        for name in names:
            self.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})

    def call_back(self, mac: str) -> None:
        """Be the ramdisk of the machine with this NIC."""
        self.call("POST", "/v1/continue_inspection", callback(mac))

    def inspect(self, names: list[str]) -> None:
        """Let these nodes be inspected, each with a machine that calls back."""
        macs = self.enroll(names)
        self.begin(names)
        self.reach(names, "inspect wait")
        for mac in macs.values():
            self.call_back(mac)
        self.reach(names, "manageable")

    def _play(self, name: str, command: list[str]) -> Played:
        self.played.append(Played(name, self.directory, [*self._within, *command]))
        return self.played[-1]


def callback(mac: str) -> dict[str, Any]:
    nic = {"name": "eth0", "mac_address": mac, "ipv4_address": "192.0.2.1", "lldp": []}
    return {
        "inventory": {
            "interfaces": [nic],
            "cpu": {"architecture": "x86_64", "count": 8},
            "memory": {"physical_mb": 4096},
            "boot": {"pxe_interface": mac},
            "disks": [],
        }
    }


def emptied(url: str) -> str:
    """Return the URL of a database whose tables are gone."""
    with opened(url) as engine, engine.connect() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return url


def commit_of(version: str) -> str:
    """Return the commit of a release: its tag's, or this one, as long as the release is being made."""
    if version in _UNTAGGED:
        return _UNTAGGED[version]
    tag = ["git", "rev-parse", "--quiet", "--verify", f"refs/tags/v{version}^{{commit}}"]
    found = subprocess.run(tag, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    if not found and version != ferroscope.__version__:
        raise RuntimeError(f"this clone has no tag v{version}; get it with: git fetch --tags")
    return found or "HEAD"


def install(wheel: Path, directory: Path) -> list[str]:
    """Install a wheel, and the client's beside it, into an environment with this one's packages; return its command."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin/python"
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel, *wheel.parent.glob("ferroscope_client-*.whl")], check=True)
    # What it depends on; our own package is found in its environment first.
    (found,) = (directory / "lib").glob("python3*/site-packages")
    (found / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return [str(python), "-m", "ferroscope"]


def built(version: str, directory: Path) -> Path:
    """Return the wheel of a release, made of its commit as ``make release`` makes it; the client's is beside it."""
    source = directory / "source"
    source.mkdir()
    packed = subprocess.run(["git", "archive", commit_of(version)], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], input=packed, cwd=source, check=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    build = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", directory]
    for distribution in (source, *source.glob("client")):
        subprocess.run([*build, distribution], cwd=source, env=environment, check=True)
    (wheel,) = directory.glob("ferroscope-*.whl")
    return wheel
