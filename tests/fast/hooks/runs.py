"""One run of hooks on a node, as a worker would do it: a real attempt on the store in memory."""

from __future__ import annotations

import copy
import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog.testing

from ferroscope.config.options import InspectorSettings, Settings
from ferroscope.core import delivery
from ferroscope.core.model import Claim, Entry, Node, Port, Request
from ferroscope.core.states import Event
from ferroscope.hooks import helpers, loader
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.loader import LoadedHook
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.runtime.system import SystemClock
from ferroscope.worker.attempt import Attempt, Locked
from ferroscope.worker.services import Services
from ferroscope_client.core.states import State
from tests import ROOT
from tests.support.stores import open_store

NODE = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"

installed = functools.cache(loader.available)


def recorded() -> list[Path]:
    """Return the recorded inventories that a checkout may have beside it, or those in FERROSCOPE_INVENTORIES."""
    beside = ROOT.parent / "shared" / "inventories"
    return sorted(Path(os.environ.get("FERROSCOPE_INVENTORIES", beside)).glob("*.json"))


class Run(msgspec.Struct):
    """What came of it."""

    context: Attempt
    plugin_data: dict[str, Any]

    @property
    def node(self) -> Node:
        return self.context.node

    @property
    def notes(self) -> list[Entry]:
        return [entry for _when, entry in self.context.journal.entries]

    def ports(self) -> dict[str, Port]:
        """Return the node's ports by MAC, as they would be stored."""
        return helpers.current(self.context)


def port(address: str, *, node: str = NODE, **fields: Any) -> Port:
    return Port(uuid=f"port-{address}", node=node, address=address, **fields)


def context(
    ports: Sequence[Port] = (),
    elsewhere: Mapping[str, str] | None = None,
    properties: dict[str, Any] | None = None,
) -> Attempt:
    """Return the context of a node with these ports; ``elsewhere`` maps MACs to the nodes that have them."""
    store = open_store()
    others = [port(mac, node=node) for mac, node in (elsewhere or {}).items()]
    node = Node(
        uuid=NODE, driver="fake", state=State.PROCESSING, properties={"old": 1} if properties is None else properties
    )

    def enrol(tx: Any) -> None:
        tx.nodes.add(node)
        for uuid in {other.node for other in others}:
            tx.nodes.add(Node(uuid=uuid, driver="fake"))
        tx.ports.add([*ports, *others])

    store.write(enrol)
    services = Services(store, Settings(), SystemClock(), threading.Event(), member="test", process="test")
    claim = Claim(request=Request(node=NODE, event=Event.CONTINUE), holder="test", token="token")
    decision = delivery.Run(delivery.advance(State.PROCESSING, Event.FINISH))
    attempt = Attempt(Locked(claim, node, None, 0.0), decision, services)
    attempt.ports = list(ports)  # as they were given: the store dates them
    return attempt


def pipeline(hooks: Sequence[str], **options: Any) -> Pipeline:
    """Return the pipeline of these hooks, by entry point name, with these ``[inspector]`` options."""
    settings = InspectorSettings(hooks=tuple(hooks), **options)
    return Pipeline(loader.load(settings, installed()), settings)


def run(
    hooks: Sequence[str],
    inventory: Any,
    plugin_data: Any = None,
    *,
    ports: Sequence[Port] = (),
    elsewhere: Mapping[str, str] | None = None,
    properties: dict[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Run these hooks, by entry point name, with these ``[inspector]`` options."""
    task = context(ports, elsewhere, properties)
    made = pipeline(hooks, **options)
    return Run(task, made.run(task, inventory, {} if plugin_data is None else plugin_data))


def run_objects(
    hooks: Mapping[str, InspectionHook],
    inventory: Any = None,
    plugin_data: Any = None,
    *,
    optional: Sequence[str] = (),
) -> Run:
    """Run these hook objects under these names, of which some are optional."""
    loaded = [LoadedHook(name, hook, name in optional) for name, hook in hooks.items()]
    task = context()
    pipeline = Pipeline(loaded, InspectorSettings())
    return Run(task, pipeline.run(task, {} if inventory is None else inventory, plugin_data or {}))


def machine(**changes: Any) -> dict[str, Any]:
    """Return a small inventory of a machine whose eth0 booted, with top-level keys replaced."""
    inventory = {
        "interfaces": [
            {"name": "lo", "mac_address": "00:00:00:00:00:00", "ipv4_address": "127.0.0.1"},
            {
                "name": "eth0",
                "mac_address": "AA:BB:CC:00:00:01",
                "ipv4_address": "192.0.2.10",
                "ipv6_address": "fe80::1%eth0",
                "has_carrier": True,
                "lldp": [[1, "04aabbccddeeff"]],
                "client_id": None,
            },
            {
                "name": "eth1",
                "mac_address": "aa:bb:cc:00:00:02",
                "ipv4_address": None,
                "ipv6_address": "2001:db8::2",
                "client_id": "id",
            },
            {"name": "eth2", "mac_address": "aa:bb:cc:00:00:03", "ipv4_address": None, "ipv6_address": None},
        ],
        "cpu": {"architecture": "x86_64", "count": 8},
        "memory": {"physical_mb": 65536, "total": 67000000000},
        "boot": {"current_boot_mode": "uefi", "pxe_interface": "aa:bb:cc:00:00:01"},
    }
    return copy.deepcopy({**inventory, **changes})


ETH0, ETH1, ETH2 = "aa:bb:cc:00:00:01", "aa:bb:cc:00:00:02", "aa:bb:cc:00:00:03"


Step = Callable[[HookTask, dict[str, Any], dict[str, Any]], None]


class Hook(InspectionHook):
    """Does in its two phases what it is given."""

    def __init__(self, *, before: Step | None = None, after: Step | None = None) -> None:
        self.before = before
        self.after = after

    def preprocess(self, task: HookTask, inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        if self.before:
            self.before(task, inventory, plugin_data)

    def __call__(self, task: HookTask, inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        if self.after:
            self.after(task, inventory, plugin_data)


def failure(hooks: dict[str, InspectionHook], *, optional: tuple[str, ...] = ()) -> HookError:
    with pytest.raises(HookError) as info, structlog.testing.capture_logs():
        run_objects(hooks, optional=optional)
    return info.value
