"""A private DCIM, a Django application in an environment of its own, on a PostgreSQL and a Redis of the test run.

Making its schema takes a while, so the first run keeps a dump of the new database, and later ones restore that.
``Synced`` is a place in it, with the syncs of machines into that.
"""

from __future__ import annotations

import fcntl
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import urllib3

from ferroscope.contrib.dcim.dialects import DcimDialect
from ferroscope.contrib.dcim.machines import DcimInterface, DcimMachine, InventoryItem
from ferroscope.contrib.dcim.rest import RestClient
from ferroscope.contrib.dcim.sync import DevicePlacement, Sync
from ferroscope.contrib.dcim.writer import Report
from tests import ROOT
from tests.support import databases, examples
from tests.support.daemons import MissingServerError, Postgresql
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import Server

ROLE: Final = "Server"
_MODEL: Final = ("Dell Inc.", "PowerEdge R650")
_CACHE: Final = Path.home() / ".cache" / "ferroscope"


class DcimServer:
    """``url`` is where it answers. What differs is in the subclasses."""

    name: ClassVar[str]  # of the package and of the environment
    program: ClassVar[str]
    dialect: ClassVar[DcimDialect]
    token: ClassVar[str]
    powerless_token: ClassVar[str]  # that of a user without rights
    # Run by its own shell: what an operator has made before the first sync.
    seed: ClassVar[str]

    def __init__(self, directory: Path, postgresql: Server, redis: Server, database: str) -> None:
        self._places = 0
        self._venv = ROOT / f".{self.name}-venv"
        self._program = self._venv / "bin" / self.program
        if not self._program.exists():
            raise MissingServerError(f"the test needs .{self.name}-venv; run: tools/setup.sh {self.name}")
        self._directory = directory
        self._variables = self.configure(directory, postgresql.port, redis.port, database)
        self._at = ["-h", "127.0.0.1", "-p", str(postgresql.port), "-U", "ferroscope", "-d", database]
        self._fill()
        self.run(["nbshell", "--command", self.seed])
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        serve = ["runserver", f"127.0.0.1:{port}", "--noreload", "--insecure"]
        self._process = Played(self.name, directory, ["env", *self._variables, str(self._program), *serve])
        self._pool = urllib3.PoolManager(retries=False, timeout=PATIENCE)
        self._process.wait_until(self._answers, seconds=300)

    def configure(self, directory: Path, postgresql: int, redis: int, database: str) -> list[str]:
        """Write its configuration; return the environment variables that it needs, as NAME=VALUE."""
        raise NotImplementedError

    def place(self, name: str) -> dict[str, Any]:
        """Return the body of a new place."""
        raise NotImplementedError

    def close(self) -> None:
        """End it."""
        self._process.end()

    def log(self) -> str:
        """Return what it has logged, such as its requests."""
        return self._process.output()

    def list(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Return all objects of a list."""
        found: list[dict[str, Any]] = self.call("GET", f"{path}/", fields={**query, "limit": 0})["results"]
        return found

    def call(self, method: str, path: str, **more: Any) -> Any:
        """Call its API as its administrator."""
        headers = {"Authorization": self.dialect.authorization(self.token)}
        answer = self._pool.request(method, f"{self.url}/api/{path}", headers=headers, **more)
        assert answer.status < 300, answer.data[:1000]
        return answer.json() if answer.data else None

    def add_place(self) -> str:
        """Add a place of its own for a test; return its name."""
        self._places += 1
        name = f"place-{self._places}"
        self.call("POST", f"{self.dialect.places}/", json=self.place(name))
        return name

    def add_device(self, place: str, name: str, *, role: str = ROLE, **fields: Any) -> Any:
        """Add a device, as its owner did; return its identifier."""
        dialect = self.dialect
        maker = self._once("dcim/manufacturers", "name", "Arista")
        kind = self._once("dcim/device-types", "model", "7050", manufacturer=maker)
        extra = {"content_types": ["dcim.device"]} if dialect.roles.startswith("extras") else {}
        where = {
            dialect.place: self.list(dialect.places, name=place)[0]["id"],
            "role": self._once(dialect.roles, "name", role, **extra),
        }
        body = {"name": name, "device_type": kind, **where, **dialect.status(dialect.default_status), **fields}
        return self.call("POST", "dcim/devices/", json=body)["id"]

    def add_interface(self, device: Any, name: str) -> Any:
        """Add an interface; return its identifier."""
        body = {"device": device, "name": name, "type": "25gbase-x-sfp28", **self.dialect.interface_status()}
        return self.call("POST", "dcim/interfaces/", json=body)["id"]

    def _once(self, path: str, field: str, value: str, **fields: Any) -> Any:
        found = self.list(path, **{field: value})
        if not found:
            found = [self.call("POST", f"{path}/", json=self.dialect.type_fields(value, field) | fields)]
        return found[0]["id"]

    def _fill(self) -> None:
        """Make the schema, or restore that of an earlier run."""
        packages = [str(path) for path in self._venv.glob("lib/python*/site-packages")]
        version = next(one.version for one in distributions(path=packages) if one.name == self.name)
        _CACHE.mkdir(parents=True, exist_ok=True)
        dump = _CACHE / f"{self.name}-{version}.dump"
        postgresql = Postgresql()
        with dump.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not dump.exists():
                self.migrate()
                half = dump.with_suffix(".half")
                subprocess.run([postgresql.program("pg_dump"), *self._at, "-Fc", "-f", str(half)], check=True)
                half.rename(dump)
                return
        subprocess.run([postgresql.program("pg_restore"), *self._at, "--no-owner", str(dump)], check=True)

    def migrate(self) -> None:
        """Make the schema in an empty database."""
        self.run(["migrate", "--no-input"])

    def run(self, arguments: Sequence[str]) -> None:
        """Run a command of its program."""
        command = ["env", *self._variables, str(self._program), *arguments]
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def _answers(self) -> bool:
        try:
            headers = {"Authorization": self.dialect.authorization(self.token)}
            return bool(self._pool.request("GET", f"{self.url}/api/status/", headers=headers).status == 200)
        except urllib3.exceptions.HTTPError:
            return False


class Synced:
    """A DCIM with a place for the test, and the syncs of machines into that."""

    def __init__(self, real: DcimServer) -> None:
        self.real = real
        self.place = real.add_place()
        self.switch = f"leaf-of-{self.place}"

    def add_switch(self, ports: int) -> dict[str, Any]:
        """Add the switch of the place, as its owner did; return the identifiers of its interfaces."""
        switch = self.real.add_device(self.place, self.switch, role="Switch")
        return {
            name: self.real.add_interface(switch, name) for name in (f"Ethernet{port}" for port in range(1, ports + 1))
        }

    def sync(self, *machines: DcimMachine, dry_run: bool = False, names: Iterable[str] = (), url: str = "") -> Report:
        """Run one; ``url`` is another address of the DCIM."""
        dialect = self.real.dialect
        client = RestClient(url or self.real.url, self.real.token, dialect, threading.Event(), seconds=60)
        client.check()
        place = DevicePlacement(self.place, ROLE, dialect.default_status)
        return Sync(client, dialect, place, dry_run=dry_run).run(machines, [*names, *(one.name for one in machines)])

    def devices(self) -> dict[str, dict[str, Any]]:
        """Return those of the place."""
        dialect = self.real.dialect
        place = self.real.list(dialect.places, name=self.place)[0]["id"]
        return {one["name"]: one for one in self.real.list("dcim/devices", **{dialect.in_place: place})}

    def parts(self, path: str, device: str) -> dict[str, dict[str, Any]]:
        """Return by name the interfaces or the inventory items of a device."""
        ident = self.devices()[device]["id"]
        listed = self.real.list(f"dcim/{path}", **{self.real.dialect.of_device: ident})
        found = [one for one in listed if one["device"]["id"] == ident]
        named = {one["name"]: one for one in found}
        assert len(named) == len(found), found
        return named

    def macs(self, device: str) -> dict[str, list[str]]:
        """Return by interface its MAC addresses, the primary one first; each is an object of its own, or a field."""
        found = {}
        for name, one in self.parts("interfaces", device).items():
            others = [other["mac_address"].lower() for other in one.get("mac_addresses", ())]
            primary = (one["mac_address"] or "").lower()
            found[name] = [primary, *(mac for mac in others if mac != primary)]
        return found


def machine(name: str, number: int = 1, *, switch: str | None = None, **fields: Any) -> DcimMachine:
    """Return a machine with two NICs, of which the first is at a port of the switch, a disk, and two DIMMs."""
    macs = [f"52:54:00:{number // 256:02x}:{number % 256:02x}:{nic:02x}" for nic in (0, 1)]
    given: dict[str, Any] = {
        "serial": f"SN-{name}",
        "interfaces": (
            DcimInterface("eth0", macs[0], switch, f"Ethernet{number}" if switch else None),
            DcimInterface("eth1", macs[1]),
        ),
        "items": (
            InventoryItem("/dev/sda", "PM1733", f"S4YN-{number}", "Samsung"),
            *(InventoryItem(slot, "M393A4K40DB3", f"D{number}-{slot}", "Samsung") for slot in ("A1", "B1")),
        ),
    }  # fmt: skip
    return DcimMachine(name, *_MODEL, **(given | fields))


Kind = TypeVar("Kind", bound=DcimServer)


@contextmanager
def running(kind: type[Kind], directory: Path, postgresql: Server) -> Iterator[Kind]:
    """Run one, with a database and a Redis of its own."""
    redis = Server("redis", f"redis-of-{kind.name}-{examples.uuid()}")  # several may run at the same time
    with databases.fresh(postgresql, migrated=False) as url:
        made = kind(directory, postgresql, redis, url.rpartition("/")[2])
        yield made
        made.close()
    redis.discard()
