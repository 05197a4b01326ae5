"""A worker that dies before or after any call of Ironic: the node there ends as if it had lived."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.config.options import IronicSettings, Settings
from ferroscope.contracts.store import Part
from ferroscope.contrib.openstack import copies
from ferroscope.contrib.openstack.attached import AttachedIronic
from ferroscope.contrib.openstack.bmc import IronicBmc
from ferroscope.contrib.openstack.client import BareMetalClient, NoLogin
from ferroscope.core.model import Rule
from ferroscope.hooks.pipeline import from_settings
from ferroscope.worker.loop import Worker
from ferroscope.worker.services import Services
from ferroscope.worker.start import PxeFilterWait, RebootThrottle
from ferroscope.worker.tasks import build
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import INVENTORY, NODE, Service, settings
from tests.support.bare_metal import Ironic
from tests.support.processes import until

FIRST, STALE = "02:00:00:00:00:01", "02:00:00:00:00:77"
ADDED = {"name": "eth1", "mac_address": "02:00:00:00:00:02", "ipv4_address": "192.0.2.2", "lldp": []}
ACTIONS = [
    {"op": "add-trait", "args": {"name": "CUSTOM_SEEN"}},
    {"op": "set-capability", "args": {"name": "seen", "value": "yes"}},
    {"op": "set-attribute", "args": {"path": "/extra/a.b", "value": "not patchable by key"}},
    {"op": "set-attribute", "args": {"path": "/extra/found", "value": "by a rule"}},
    {"op": "set-attribute", "args": {"path": "/driver_info/fake_password", "value": "pa55-of-a-rule"}},
    {"op": "set-attribute", "args": {"path": "/resource_class", "value": "baremetal"}},
]


class KilledError(BaseException):
    """Nothing catches it: the process is gone at this point."""


class Dying:
    """An Ironic whose caller dies at call number ``at``, counted from 1: before it is sent, or when it took effect."""

    def __init__(self, client: BareMetalClient, at: int = 0, *, after: bool = False) -> None:
        self._client = client
        self._at = at
        self._after = after
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            dies = len(self.calls) == self._at
            if dies and not self._after:
                raise KilledError
            answer = call(*arguments, **options)
            if dies:
                raise KilledError
            return answer

        return counted


class Beside(Service):
    """The service in one process, with the node ``NODE`` of a real Ironic."""

    def __init__(self, options: Settings, client: Any) -> None:
        self.attached = AttachedIronic(client, options)
        super().__init__(options, real_time=True)

    def new_worker(self, member: str) -> Worker:
        self.beat(member)
        throttle = RebootThrottle(
            0.0, holder=member, store=self.store, clock=self.clock, profile=self.settings.lease.numbers()
        )
        services = Services(
            self.store,
            self.settings,
            self.clock,
            self.stop,
            member=member,
            process=f"worker {member}",
            power_times=self.attached.power_times,
        )
        parts = (from_settings(self.settings.inspector), throttle, PxeFilterWait(0.0))
        drivers = {"fake-hardware": IronicBmc(DriverOptions(ironic=self.attached.client))}
        return Worker(services, self.queue, build(*parts, replace=self.attached.tasks), drivers)

    def work_and_die(self) -> None:
        """Work until the queue is empty; whoever dies is followed by another."""
        while self.pending:
            try:
                self.worker.step()
            except KilledError:
                self.kill(self.worker.services.member)
                self.worker = self.new_worker(f"{self.worker.services.member}+")


def _settings() -> Settings:
    options = settings(keep_ports="present", add_ports="all")
    drivers = msgspec.structs.replace(options.drivers, power_timeout=30.0)
    ironic = IronicSettings(timeout=20.0, retry_interval=0.05)
    return msgspec.structs.replace(options, drivers=drivers, ironic=ironic)


def _enroll(ironic: Ironic) -> None:
    """Enroll ``NODE`` anew, with a port that it has and one that it has no more."""
    if ironic.answer("GET", f"/v1/nodes/{NODE}")[0] == 200:
        ironic.call("DELETE", f"/v1/nodes/{NODE}")
    fields = {"properties": {"capabilities": "zone:blue"}, "extra": {"asset": "1"}, "driver_info": {}}
    ironic.enroll("dying", FIRST, STALE, uuid=NODE, **fields)
    ironic.call("PUT", f"/v1/nodes/{NODE}/traits", {"traits": ["CUSTOM_OLD"]})


def _run(ironic: Ironic, at: int = 0, *, after: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Inspect the node; return how it and its ports end in Ironic, and which calls were made."""
    _enroll(ironic)
    login = NoLogin(IronicSettings(endpoint_override=ironic.url))
    client = Dying(BareMetalClient(_settings().ironic, login, threading.Event()), at, after=after)
    service = Beside(_settings(), client)
    document = ironic.node(NODE)
    service.store.write(lambda tx: tx.nodes.remove(NODE))
    service.store.write(lambda tx: copies.save(tx, document, []))
    service.store.write(lambda tx: tx.rules.add(Rule(uuid="33333333-3333-4333-8333-333333333333", actions=ACTIONS)))
    service.start()
    service.work_and_die()
    assert service.node.state is State.WAITING, service.node.last_error
    inventory = {**INVENTORY, "interfaces": [*INVENTORY["interfaces"], ADDED]}
    service.call_back(inventory)
    service.work_and_die()
    assert service.node.state is State.FINISHED, service.node.last_error
    return _ended(ironic), client.calls


def _ended(ironic: Ironic) -> dict[str, Any]:
    assert until(lambda: ironic.node(NODE)["reservation"] is None)  # Ironic itself lets go a little later
    node = ironic.node(NODE)
    kept = (
        "properties",
        "extra",
        "driver_info",
        "traits",
        "resource_class",
        "power_state",
        "reservation",
        "last_error",
    )
    ports = [
        {name: port[name] for name in ("address", "pxe_enabled", "extra", "local_link_connection")}
        for port in ironic.ports(NODE)
    ]
    return {**{name: node[name] for name in kept}, "provision_state": node["provision_state"], "ports": ports}


@pytest.fixture(scope="module")
def undisturbed(ironic: Ironic) -> tuple[dict[str, Any], list[str]]:
    """Return how the node ends if nobody dies."""
    return _run(ironic)


def test_what_hooks_and_rules_change_is_in_ironic(undisturbed: tuple[dict[str, Any], list[str]]) -> None:
    ended, calls = undisturbed
    assert ended["properties"] == {"capabilities": "zone:blue,seen:yes", "cpu_arch": "x86_64"}
    assert ended["extra"] == {"asset": "1", "a.b": "not patchable by key", "found": "by a rule"}
    assert ended["driver_info"] == {"fake_password": "******"}
    assert ended["traits"] == ["CUSTOM_OLD", "CUSTOM_SEEN"]
    assert [port["address"] for port in ended["ports"]] == [FIRST, ADDED["mac_address"]]
    assert (ended["power_state"], ended["reservation"]) == ("power off", None)
    assert {"update_node", "set_traits", "add_port", "remove_port", "set_boot_device", "set_power"} <= set(calls)


def test_ironic_is_not_asked_for_the_power_that_it_has_just_reported(
    ironic: Ironic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferroscope.worker.attempt._RECENT_SECONDS", 1e6)  # however slow this machine is
    ended, calls = _run(ironic)
    changes = [place for place, call in enumerate(calls) if call == "set_power"]
    assert len(changes) == 3  # off, because Ironic has not asked the machine yet; on; off
    assert [calls[place - 1] for place in changes[1:]] == ["set_boot_device", "add_port"]
    assert ended["power_state"] == "power off"
    monkeypatch.setattr("ferroscope.worker.attempt._RECENT_SECONDS", -1.0)
    _, calls = _run(ironic)
    assert all(calls[place - 1] == "power" for place, call in enumerate(calls) if call == "set_power")


def _killed_at_each(ironic: Ironic, undisturbed: tuple[dict[str, Any], list[str]], *, odd_is_after: bool) -> None:
    ended, calls = undisturbed
    for at in range(1, len(calls) + 1):
        after = (at % 2 == 1) is odd_is_after
        found, _ = _run(ironic, at, after=after)
        assert found == ended, f"killed {'after' if after else 'before'} call {at}, {calls[at - 1]}"


def test_a_worker_that_dies_at_any_call_leaves_nothing_half_done(
    ironic: Ironic, undisturbed: tuple[dict[str, Any], list[str]]
) -> None:
    _killed_at_each(ironic, undisturbed, odd_is_after=True)


def test_nor_does_one_that_dies_on_the_other_side_of_it(
    ironic: Ironic, undisturbed: tuple[dict[str, Any], list[str]]
) -> None:
    _killed_at_each(ironic, undisturbed, odd_is_after=False)


def test_secrets_that_a_rule_sets_are_not_in_the_queue(ironic: Ironic) -> None:
    _enroll(ironic)
    login = NoLogin(IronicSettings(endpoint_override=ironic.url))
    service = Beside(_settings(), BareMetalClient(_settings().ironic, login, threading.Event()))
    document = ironic.node(NODE)
    service.store.write(lambda tx: tx.nodes.remove(NODE))
    service.store.write(lambda tx: copies.save(tx, document, []))
    service.store.write(lambda tx: tx.rules.add(Rule(uuid="33333333-3333-4333-8333-333333333333", actions=ACTIONS)))
    service.start()
    service.work_and_die()
    service.call_back(INVENTORY)
    claim = service.claim()
    assert claim is not None
    service.worker.reserve = lambda _event, _request: None  # the request to finish stays in the queue
    service.worker.carry_out(claim)
    (finish,) = service.pending
    assert "fake_password" in str(finish.payload)
    assert "pa55-of-a-rule" not in str(finish.payload)
    parts: tuple[Part, ...] = ("inventory",)
    assert service.store.read(lambda tx: tx.data.load(service.inspection.uuid, parts))
