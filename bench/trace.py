"""``trace``: how an inspection travels through the source: calls, files, and how often it goes back and forth.

Counts and not times, so they are the same on every machine. A switch is a call of a function in another file than that
of the call before it; ``depth`` counts the functions of the service that wait for each other.

Three settings, because one alone shows its kindest side: many short cuts are taken only without authentication, only
with the simulator, or only by a process that has inspected before. The files of an inspection are those of all its
journeys, of the parser of its requests, and of the claims.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.cycle import enrolled, scratch
from bench.databases import database
from bench.field import Plan
from bench.report import Report
from bench.service import Service, service
from bench.traced import FILE, Journey
from tests.support.processes import PATIENCE, until
from tests.support.redfish import HTPASSWD, PASSWORD, USER, driver_info, emulator, mac

_TRACED: Final = str(Path(__file__).with_name("traced.py"))
_ROUNDS: Final = 3
# How a journey's title ends, and what it is called in the report.
_JOURNEYS: Final = {
    "/states/provision": "PUT inspect: api",
    "worker: inspect": "start of the machine: worker",
    "continue_inspection": "callback: api",
    "worker: continue": "processing: worker",
    "worker: finish": "finish: worker",
}
# The journeys in the picture of the way, in their order.
_WAY: Final = ("parser", *list(_JOURNEYS.values())[:1], "claim", *list(_JOURNEYS.values())[1:])
_PAGE: Final = Path(__file__).parents[1] / "docs/explanation/architecture.md"
_PICTURE: Final = re.compile(r"(?<=```mermaid\n)flowchart TB\n.*?(?=```)", re.DOTALL)
# Targets.
_MAX_FILES: Final = 40
_MAX_FILES_OF_A_JOURNEY: Final = 30
_MAX_DEPTH: Final = 18
_MAX_CALLS: Final = {"PUT inspect: api": 200, "callback: api": 300}


class Route(msgspec.Struct, frozen=True):
    """What one journey amounts to. ``calls`` and all others are of functions of the service, but ``python``: of any."""

    title: str
    calls: int
    python: int
    functions: int
    files: int
    switches: int
    depth: int
    db: int

    @classmethod
    def of(cls, title: str, journey: Journey) -> Route:
        files = [path for _, path, _ in journey.steps]
        return cls(
            title=title,
            calls=len(files),
            python=journey.calls,
            functions=len({(path, name) for _, path, name in journey.steps}),
            files=len(set(files)),
            switches=sum(here != there for here, there in itertools.pairwise(files)),
            depth=max(depth for depth, _, _ in journey.steps),
            db=sum(path.startswith("db/") for path in files),
        )


def measure_simulator(directory: Path, rounds: int, *, restarted: bool = False) -> list[Journey]:
    """Return the journeys of some inspections of simulated machines on SQLite, without authentication.

    ``restarted``: of a process that has not inspected before, nor seen any other call.
    """
    traced = [sys.executable, "-P", _TRACED, str(directory)]
    with enrolled("sqlite", Plan(nodes=1), directory, roles=["all"], commands={"all": traced}) as fleet:
        if restarted:
            _restart(fleet.service, directory)
        for _ in range(rounds):
            fleet.inspect(concurrency=1, check=False)
    return _read(directory)


def measure_redfish(directory: Path) -> list[Journey]:
    """Return the journeys of an inspection over Redfish on PostgreSQL, by a user with a password."""
    users, traced = directory / "users", [sys.executable, "-P", _TRACED, str(directory)]
    users.write_text(f"{HTPASSWD.strip()}:admin\n")
    users.chmod(0o600)
    api = f"auth_strategy = http_basic\nhttp_basic_auth_user_file = {users}\n"
    drivers = "enabled = redfish\nallow_http_passwords = true\nbmc_networks = 127.0.0.0/8\n"
    with (
        emulator(directory, machines=1) as machines,
        database("postgresql", directory) as base,
        service(directory, base.url, roles=["all"], commands={"all": traced}, api=api, extra=drivers) as running,
    ):
        call = _Operator(running.url)
        body = {"name": "machine", "driver": "redfish", "driver_info": driver_info(machines.url)}
        call("POST", "/v1/nodes", body)
        call("PUT", "/v1/nodes/machine/states/provision", {"target": "manage"})
        call.wait("manageable")
        call("PUT", "/v1/nodes/machine/states/provision", {"target": "inspect"})
        call.wait("inspect wait")
        inventory = {
            "interfaces": [{"name": "eth0", "mac_address": mac(0), "ipv4_address": "192.0.2.7", "lldp": []}],
            "cpu": {"architecture": "x86_64", "count": 64, "model_name": "Xeon"},
            "memory": {"physical_mb": 98304, "total": 103079215104},
            "disks": [],
            "boot": {"pxe_interface": mac(0)},
        }
        call("POST", "/v1/continue_inspection", {"inventory": inventory})
        call.wait("manageable")
    return _read(directory)


class _Operator:
    """The calls of an operator with a password."""

    def __init__(self, url: str) -> None:
        self._url = url
        password = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {password}",
            "Content-Type": "application/json",
            "X-OpenStack-Ironic-API-Version": "1.84",
        }

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, method=method, data=data, headers=self._headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def wait(self, state: str) -> None:
        """Return when the node is in this state; ``RuntimeError`` with its last error."""
        node: dict[str, Any] = {}
        if not until(lambda: bool(node.update(self("GET", "/v1/nodes/machine"))) or node["provision_state"] == state):
            raise RuntimeError(f"{node['provision_state']} instead of {state}: {node['last_error']}")


def _restart(running: Service, directory: Path) -> None:
    role = running.roles["all"]
    role.stop()
    (directory / FILE).unlink()
    role.start()
    role.wait_ready()


def _read(directory: Path) -> list[Journey]:
    return [msgspec.json.decode(line, type=Journey) for line in (directory / FILE).read_bytes().splitlines()]


def select_last(journeys: list[Journey]) -> dict[str, Journey]:
    """Return the last journey of each kind, by its name in the report."""
    last = {name: journey for journey in journeys for end, name in _JOURNEYS.items() if journey.title.endswith(end)}
    return {name: last[name] for name in _JOURNEYS.values()}


def draw(journeys: dict[str, Journey]) -> str:
    """Return a picture of the way in Mermaid: each file stands in the journey that enters it first, in this order."""
    seen: set[str] = set()
    lines = ["flowchart TB", f"    {' --> '.join(f'j{number}' for number in range(len(_WAY)))}"]
    for number, title in enumerate(_WAY):
        packages: dict[str, list[str]] = {}
        for _, path, _ in journeys[title].steps:
            if path not in seen:
                package, _, file = path.rpartition("/")
                packages.setdefault(package, []).append(file.removesuffix(".py"))
                seen.add(path)
        rows = [f"{package or '.'}/ {', '.join(files)}" for package, files in packages.items()]
        lines.append(f'    j{number}["{"<br/>".join((f"<b>{title}</b>", *rows))}"]')
    return "\n".join(lines) + "\n"


@click.command("trace")
@click.pass_obj
@click.option("--picture", is_flag=True, help="Draw the way on SQLite in docs/explanation/architecture.md.")
@click.option("--steps", multiple=True, metavar="TEXT", help="Print all calls of the journeys with TEXT in their name.")
def command(context: tuple[Report, Path], steps: tuple[str, ...], *, picture: bool) -> None:
    """The journey of one inspection through the source, in three settings."""
    report, directory = context
    settings: dict[str, Callable[[Path], list[Journey]]] = {
        "sqlite, simulator": partial(measure_simulator, rounds=_ROUNDS),
        "postgresql, http_basic, redfish": measure_redfish,
        "first of a process": partial(measure_simulator, rounds=1, restarted=True),
    }
    for name, measure in settings.items():
        report.section(f"trace: {name}")
        with scratch(directory) as place:
            traced = measure(place)
        journeys = select_last(traced)
        routes = [Route.of(title, journey) for title, journey in journeys.items()]
        head = ("", "calls", "of Python", "functions", "files", "switches", "depth", "in db/")
        report.table(head, [msgspec.structs.astuple(route) for route in routes])
        for title, journey in journeys.items():
            if any(text in title for text in steps):
                report.section(title)
                for depth, path, called in journey.steps:
                    report.console.print(f"{'  ' * (depth - 1)}{path}: {called}", soft_wrap=True)
        report.keep(f"trace {name}", routes)
        others = [journey for journey in traced if journey.title in ("parser", "claim")]
        if picture and measure is settings["sqlite, simulator"]:
            way = draw(journeys | {journey.title: journey for journey in others})
            _PAGE.write_text(_PICTURE.sub(way, _PAGE.read_text()))
        files = {path for journey in (*journeys.values(), *others) for _, path, _ in journey.steps}
        report.figure("files of an inspection", name, len(files), most=_MAX_FILES)
        report.figure("files of a journey", name, max(route.files for route in routes), most=_MAX_FILES_OF_A_JOURNEY)
        report.figure("depth of a journey", name, max(route.depth for route in routes), most=_MAX_DEPTH)
        for route in routes:
            report.figure(f"calls: {route.title}", name, route.calls, most=_MAX_CALLS.get(route.title))
