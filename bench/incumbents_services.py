"""The three services that ``incumbents`` compares, each started anew on SQLite, with machines that cost it nothing.

This tree with the driver ``fake-hardware``; ironic-inspector beside a Bare Metal API that answers from memory in a
process of its own; Ironic, API and conductor in one process, with fake hardware and its own inspection. All other
settings are defaults, but that ironic-inspector stores what it finds out and does not pause between two starts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.databases import database
from bench.incumbents_plan import BARE_METAL, INTROSPECTION, Plan
from bench.load_process import LoadProcess
from bench.service import service
from bench.usage import cpu_seconds
from tests import ROOT
from tests.support.bare_metal import ironic
from tests.support.inspector.service import Inspector

# Ironic's inspection by its own agent, of machines whose boot it does not manage: fake hardware has no such boot.
_AGENT: Final = """\
[DEFAULT]
enabled_inspect_interfaces = agent,fake
[conductor]
node_locked_retry_attempts = 3
[inspector]
require_managed_boot = false
"""
_ASK: Final = """\
import json, os, platform, sys
from importlib.metadata import version
print(json.dumps([os.path.realpath(sys.executable), platform.python_version(), version(sys.argv[1])]))
"""


class Environment(msgspec.Struct, frozen=True, array_like=True):
    """The interpreter of a virtual environment, its version, and that of the service."""

    interpreter: str
    python: str
    version: str


class Running(msgspec.Struct, frozen=True):
    """A service. ``counted``: the pids of its processes; ``free``: that of the one that only stands in for Ironic."""

    dialect: str
    url: str
    registry: str
    counted: list[int]
    free: int | None = None
    fields: dict[str, str] = {}

    def plan(self, nodes: int) -> Plan:
        return Plan(dialect=self.dialect, url=self.url, registry=self.registry, nodes=nodes, fields=self.fields)

    def cpu(self) -> float:
        """Return the CPU seconds that the service has used, all its processes and what they have started included."""
        return sum(map(cpu_seconds, self.counted))


@contextmanager
def ours(directory: Path) -> Iterator[Running]:
    """Run api and worker of this tree."""
    with database("sqlite", directory) as base, service(directory, base.url) as running:
        yield Running(BARE_METAL, running.url, running.url, [role.pid for role in running.roles.values()])


@contextmanager
def inspector(directory: Path) -> Iterator[Running]:
    """Run ironic-inspector and what it takes for Ironic."""
    with LoadProcess("bench.incumbents_stub", directory / "stub.log") as stub:
        registry = stub.ask({}, dict[str, str])["url"]
        running = Inspector(directory, registry)
        try:
            running.wait_answers()
            yield Running(INTROSPECTION, running.url, registry, [running.pid], stub.pid)
        finally:
            running.end()


@contextmanager
def agent_of_ironic(directory: Path) -> Iterator[Running]:
    """Run Ironic."""
    with ironic(directory / "ironic", extra=_AGENT) as running:
        yield Running(BARE_METAL, running.url, running.url, [running.pid], fields={"inspect_interface": "agent"})


class Side(msgspec.Struct, frozen=True):
    """One of those that are compared: ``environment`` is the folder of its virtual environment."""

    name: str
    distribution: str
    environment: str
    running: Callable[[Path], AbstractContextManager[Running]]

    @property
    def python(self) -> Path:
        return ROOT / self.environment / "bin" / "python"


OURS: Final = Side("Ferroscope", "ferroscope", ".venv", ours)
SIDES: Final = (
    OURS,
    Side("ironic-inspector", "ironic-inspector", ".inspector-venv", inspector),
    Side("Ironic", "ironic", ".ironic-venv", agent_of_ironic),
)


def install(sides: tuple[Side, ...] = SIDES) -> None:
    """Install what is missing from the package index, in the versions that the tests use."""
    missing = [side.environment.strip(".").removesuffix("-venv") for side in sides if not side.python.exists()]
    if missing:
        subprocess.run([ROOT / "tools" / "setup.sh", *missing], check=True)


def environments(sides: tuple[Side, ...] = SIDES) -> dict[str, Environment]:
    """Return what each runs with, by name. This process is part of ours."""
    found = {}
    for side in sides:
        python = sys.executable if side is OURS else str(side.python)
        done = subprocess.run([python, "-c", _ASK, side.distribution], capture_output=True, check=True)
        found[side.name] = msgspec.json.decode(done.stdout, type=Environment)
    return found


def differing(found: Mapping[str, Environment]) -> str:
    """Return why these cannot be compared: one interpreter may take 1.4 times as long as another. "" if they can."""
    if len({one.interpreter for one in found.values()}) < 2:
        return ""
    said = "; ".join(f"{name}: {one.interpreter}" for name, one in found.items())
    return (
        f"the interpreters differ ({said}), and one may take 1.4 times as long as another for the same work: remove the"
        " environments of the others and call tools/setup.sh venv inspector ironic, with PYTHON set to one interpreter"
    )
