"""What comes while something else is under way: commands, reapplies and callbacks that are in each other's way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import Query
from ferroscope.core.delivery import IllegalEventError
from ferroscope.core.model import Node, Port, Request
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.storage.reader import newest
from ferroscope_client.core.states import Provision, State
from tests.fast.worker.conftest import INVENTORY, NODE, Service, settings


def verify(service: Service) -> None:
    """What the api does for ``manage`` of an enrolled node."""

    def work(tx: Transaction) -> None:
        node = msgspec.structs.replace(tx.nodes.get(NODE), provision_state=Provision.ENROLL)
        transition.submit(tx, node, Event.VERIFY, process="api")
        transition.rest(tx, node, Provision.VERIFYING, target=str(Provision.MANAGEABLE))

    service.store.write(work)


def test_a_reapply_is_refused_while_a_verification_waits(service: Service) -> None:
    inspected(service)
    verify(service)
    service.machine.fail = lambda _command: BmcError("no answer", transient=True)
    service.worker.step()
    assert [request.event for request in service.pending] == [Event.VERIFY]
    with pytest.raises(IllegalEventError):
        service.reapply()
    service.work()
    assert service.node.provision_state is Provision.ENROLL
    assert service.node.state is State.FINISHED


def test_a_verification_that_a_reapply_has_overtaken_makes_nothing_manageable(service: Service) -> None:
    inspected(service)

    def discovered(tx: Transaction) -> None:
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(NODE), provision_state=Provision.ENROLL))

    service.store.write(discovered)
    service.reapply()
    with pytest.raises(IllegalEventError):
        verify(service)
    request = Request(node=NODE, event=Event.VERIFY)  # as a release before this one queued it
    service.store.write(lambda tx: tx.requests.put(request))
    service.work()
    assert service.node.provision_state is Provision.ENROLL
    assert (service.steps.count("dropped"), service.steps.count("verified")) == (1, 0)


def test_a_power_command_that_is_dropped_promises_nothing_any_more(service: Service) -> None:
    def command(tx: Transaction) -> None:
        node = tx.nodes.get(NODE)
        transition.submit(tx, node, Event.SET_POWER, process="api", payload={"target": "power on"})
        tx.nodes.update(msgspec.structs.replace(node, target_power_state="power on"))

    service.store.write(command)
    service.boot(manage_boot=False)
    assert "dropped" in service.steps
    assert service.node.target_power_state is None


def test_a_reapply_is_an_inspection_of_its_own(service: Service) -> None:
    first = inspected(service)
    ended = service.inspection.finished_at
    service.clock.now += 60.0
    service.reapply()
    assert service.node.state is State.REAPPLYING
    service.work()
    second = service.inspection
    assert (second.uuid != first, second.reapplies, second.state) == (True, first, State.FINISHED)
    assert service.store.read(lambda tx: tx.inspections.get(first)).finished_at == ended


def test_a_reapply_that_fails_replaces_nothing() -> None:
    service = Service(settings())
    first = inspected(service)
    before = service.node
    service.reapply({"interfaces": [{"name": "eth0", "mac_address": "02:00:00:00:00:99"}], "cpu": 5}, error="wrong")
    service.work()
    after = service.node
    assert (after.state, service.inspection.reason) == (State.ERROR, "ramdisk-error")
    assert (after.properties, after.search_digest) == (before.properties, before.search_digest)
    found = service.store.read(lambda tx: newest(tx, tx.nodes.get(NODE), ("inventory", "plugin_data")))
    assert found is not None
    assert found.inspection == first
    unprocessed = service.store.read(lambda tx: newest(tx, tx.nodes.get(NODE), ("inventory", "unprocessed")))
    assert unprocessed is not None
    assert unprocessed.inspection == first, "a reapply of what is stored must not take what was refused"


def test_a_command_is_not_a_step_of_the_inspection_before_it(service: Service) -> None:
    ident = inspected(service)
    steps = len([entry for entry in service.journal if entry.inspection == ident])
    service.carry_out(Event.SET_POWER, {"target": "power on"})
    assert len([entry for entry in service.journal if entry.inspection == ident]) == steps
    assert [entry.step for entry in service.journal if entry.inspection is None] == ["requested", "power on"]


def inspected(service: Service) -> str:
    service.inspect()
    assert service.node.state is State.FINISHED
    return service.node.inspection or ""


def test_the_times_of_steps_never_go_back_however_long_a_transaction_takes(service: Service) -> None:
    write = service.store.write

    def slow(work: Callable[[Transaction], Any], **options: Any) -> Any:
        def slowly(tx: Transaction) -> Any:
            service.clock.now += 7.0
            return work(tx)

        return write(slowly, **options)

    service.store.write = slow  # type: ignore[method-assign,assignment]
    inspected(service)
    times = [entry.at for entry in service.journal]
    assert times == sorted(times)


OTHER = {"digest": "other"}


def _ports(service: Service) -> list[Port]:
    found = service.store.read(lambda tx: tx.ports.list(Query(filters={"node": NODE})))
    return [msgspec.structs.replace(port, updated_at=None) for port in found]


def _conflict(service: Service, when: str) -> None:
    """Carry out the first callback; a different one arrives before, while, or after its data is processed."""
    if when == "queued":
        service.submit(Event.CONTINUE, OTHER)
        return
    if when == "hooks running":
        claim = service.claim()
        assert claim is not None
        locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
        attempt = service.worker.begin_attempt(locked, decision)
        outcome = service.worker.run(attempt)
        service.submit(Event.CONTINUE, OTHER)
        assert service.worker.commit(attempt, outcome) is None
        return
    calls = iter((True,))

    def called(command: str) -> None:
        if command == "power off" and next(calls, False):
            service.submit(Event.CONTINUE, OTHER)

    service.machine.fail = called


@pytest.mark.parametrize("when", ["queued", "hooks running", "powering off"])
@pytest.mark.parametrize("before", ["never inspected", "inspected"])
def test_conflicting_callbacks_leave_no_results_of_the_first(service: Service, when: str, before: str) -> None:
    """Two machines share a MAC: what one of them has is not what the node has (specification.md F6)."""
    if before == "inspected":
        service.inspect()
        assert service.node.state is State.FINISHED
        assert service.ports
    service.boot()
    known, ports = service.node, _ports(service)
    rows = service.store.read(lambda tx: tx.search_index.of(NODE))
    others = {**INVENTORY, "cpu": {"architecture": "riscv64", "count": 96}, "memory": {"physical_mb": 1024}}
    others["interfaces"] = [{"name": "eth7", "mac_address": "02:00:00:00:00:07"}, *INVENTORY["interfaces"]]
    service.call_back(others)
    _conflict(service, when)
    service.work()
    node = service.node
    assert (node.state, service.inspection.reason) == (State.ERROR, "conflicting-callback")
    assert service.machine.power is Power.OFF
    moved = {"search_digest", "state", "last_error", "power_state", "inspection", "version", "updated_at"}
    moved |= {name for name in Node.__struct_fields__ if name.startswith(("inspection_", "provision_", "target_"))}
    fields = sorted(set(Node.__struct_fields__) - moved)
    assert {name: getattr(node, name) for name in fields} == {name: getattr(known, name) for name in fields}
    assert _ports(service) == ports
    indexed = service.store.read(lambda tx: tx.search_index.of(NODE))
    assert indexed == (rows if when != "powering off" else [])
    found = service.store.read(lambda tx: newest(tx, tx.nodes.get(NODE), ("inventory", "plugin_data")))
    assert (found is None) is (before == "never inspected")
    service.start()  # the right machine
    service.work()
    service.machine.fail = lambda _command: None
    service.finish()
    assert service.node.state is State.FINISHED
    assert service.store.read(lambda tx: tx.search_index.of(NODE))


def test_what_an_operator_changes_meanwhile_survives_a_conflict(service: Service) -> None:
    service.boot()
    service.call_back()
    _conflict(service, "powering off")
    conflict = service.machine.fail

    def called(command: str) -> None:
        if command == "power off" and "operator" not in service.node.extra:
            node = service.node
            service.store.write(
                lambda tx: tx.nodes.update(msgspec.structs.replace(node, extra={**node.extra, "operator": 1}))
            )
        conflict(command)

    service.machine.fail = called
    service.work()
    assert (service.node.state, service.node.extra) == (State.ERROR, {"operator": 1})
    assert service.node.properties == {}
