"""Ferroscope with a real Ironic attached: api and workers as processes, machines whose ramdisks the tests play."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from ferroscope_sim.inventory import generate, pxe_mac
from tests.support.bare_metal import Ironic
from tests.support.installation import Installation, Played
from tests.support.processes import PATIENCE, free_port, until

_SETTINGS: Final = """\
[database]
connection = {database}
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = {introspection}
[worker]
threads = 2
member_ttl = 2
[lease]
profile = fast
[inspector]
hooks = $default_hooks,memory,cpus,cpu-capabilities,local-link-connection
[registry]
backend = ironic
sync_period = 1
[ironic]
retry_interval = 0.1
max_retries = 2
timeout = 20
{login}
{extra}
"""
# Of machines: several installations may have one Ironic.
_NUMBERS: Final = itertools.count(1)


def command(*words: str) -> list[str]:
    """Return a command of ours."""
    return [sys.executable, "-m", "ferroscope", *words]


class Place(Installation):
    """``login``: the lines of ``[ironic]`` that say where it is; it is there before we start.

    ``credentials``: USER:PASSWORD for our APIs.
    """

    def __init__(
        self,
        directory: Path,
        ironic: Ironic,
        *,
        workers: int = 1,
        login: str = "",
        extra: str = "",
        introspection_port: int = 0,
        credentials: str = "",
        database: str = "",
    ) -> None:
        super().__init__(directory)
        self.ironic = ironic
        self.port, self.introspection_port = free_port(), introspection_port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.introspection = f"http://127.0.0.1:{self.introspection_port}"
        self.config = directory / "f.conf"
        self.config.write_text(
            _SETTINGS.format(
                database=database or f"sqlite:///{directory}/f.db",
                port=self.port,
                introspection=self.introspection_port,
                login=login or f"auth_type = none\nendpoint_override = {ironic.url}",
                extra=extra,
            )
        )
        self._workers = workers
        self._credentials = urllib3.make_headers(basic_auth=credentials) if credentials else {}
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE, maxsize=16)
        self.api: Played
        self.workers: list[Played] = []

    def _start(self) -> None:
        subprocess.run([*command("db", "upgrade"), "-c", str(self.config)], check=True, capture_output=True)
        self.api = self.play("api", command("api", "-c", str(self.config)))
        self.workers = [
            self.play(f"worker-{number}", command("worker", "-c", str(self.config))) for number in range(self._workers)
        ]
        for played in (self.api, *self.workers):
            played.wait_ready()

    def call(self, method: str, path: str, body: Any = None, *, root: str = "") -> tuple[int, Any]:
        """Return status and document of one call to us."""
        headers = self._credentials | ({"X-OpenStack-Ironic-API-Version": "1.96"} if not root else {})
        given = self._http.request(method, (root or self.url) + path, json=body, headers=headers)
        return given.status, msgspec.json.decode(given.data) if given.data else None

    def node(self, ident: str) -> Any:
        """Return our copy of the node; None if there is none."""
        status, found = self.call("GET", f"/v1/nodes/{ident}")
        return found if status == 200 else None

    def enroll(self, **fields: Any) -> tuple[str, int]:
        """Enroll a new machine in Ironic; return its UUID and number."""
        number = next(_NUMBERS)
        return self.ironic.enroll(f"machine-{number}", pxe_mac(number), **fields), number

    def inspect(self, uuid: str) -> None:
        """Request an inspection."""
        status, found = self.call("POST", f"/v1/introspection/{uuid}", root=self.introspection)
        assert status == 202, found

    def call_back(self, number: int, **changes: Any) -> int:
        """Send what the machine's ramdisk sends; return the status."""
        body = msgspec.json.decode(generate(number)) | changes
        return self.call("POST", "/v1/continue_inspection", body)[0]

    def state(self, uuid: str) -> str:
        return str(self.status(uuid).get("state"))

    def status(self, uuid: str) -> Any:
        return self.call("GET", f"/v1/introspection/{uuid}", root=self.introspection)[1]

    def await_state(self, uuid: str, *states: str) -> None:
        assert until(lambda: self.state(uuid) in states), (self.status(uuid), self.output()[-3000:])

    def inspected(self, uuid: str, number: int) -> None:
        """Inspect a machine to the end."""
        self.inspect(uuid)
        self.await_state(uuid, "waiting")
        assert self.call_back(number) == 202
        self.await_state(uuid, "finished")

    def steps(self, uuid: str) -> list[str]:
        """Return the messages of the steps of the node's newest inspection."""
        inspections = self.call("GET", f"/v1/nodes/{uuid}/timeline")[1]["inspections"]
        return [str(one["message"]) for one in inspections[0]["entries"]] if inspections else []

    def rows(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.directory / "f.db", timeout=PATIENCE)) as connection:
            return connection.execute(statement).fetchall()

    def output(self) -> str:
        return "".join(played.output() for played in (self.api, *self.workers))


def expected(number: int) -> dict[str, Any]:
    """Return what the hooks find out about the machine, as properties of its node."""
    inventory = msgspec.json.decode(generate(number))["inventory"]
    return {
        "cpu_arch": inventory["cpu"]["architecture"],
        "cpus": inventory["cpu"]["count"],
        "memory_mb": inventory["memory"]["physical_mb"],
    }
