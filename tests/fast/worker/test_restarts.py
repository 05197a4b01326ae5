"""A start while a machine is waited for replaces the inspection that waits, whoever is working on that one."""

from __future__ import annotations

import pytest

from ferroscope import transition
from ferroscope.contracts.bmc import Power
from ferroscope.core.callback_secret import CallbackProof, judge, live
from ferroscope.core.states import Event
from ferroscope_client.core.states import Provision, State
from tests.fast.worker.conftest import Service


def test_a_start_while_waiting_is_a_new_inspection_that_replaces_the_one_that_waits(service: Service) -> None:
    service.boot(secret="first", secret_delivery="boot-script")
    old = service.inspection
    node = service.start(secret="second", secret_delivery="boot-script")
    assert (node.state, node.provision_state) == (State.STARTING, Provision.INSPECTING)
    assert node.inspection != old.uuid
    ended = service.store.read(lambda tx: tx.inspections.get(old.uuid))
    assert (ended.state, ended.reason, ended.finished_at is not None) == (State.ERROR, "restarted", True)
    assert node.inspection in (ended.error or "")
    assert live(ended) is None
    assert judge("required", service.inspection, "first").proof is CallbackProof.WRONG
    service.work()
    assert service.machine.commands == ["boot pxe", "power on", "power off", "boot pxe", "power on"]
    service.finish()
    assert (service.node.state, service.node.inspection, service.node.last_error) == (
        State.FINISHED,
        node.inspection,
        None,
    )
    assert [entry.inspection for entry in service.journal if entry.step == "replaced"] == [old.uuid]


def test_a_start_while_waiting_is_refused_once_the_machine_has_called_back(service: Service) -> None:
    service.boot()
    ident = service.node.inspection or ""
    service.store.write(lambda tx: tx.inspections.update(ident, digest="d"))
    service.call_back()
    with pytest.raises(transition.NotInspectableError, match="called back"):
        service.start()
    service.work()
    assert (service.node.state, service.node.inspection) == (State.FINISHED, ident)


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT])
def test_what_would_have_ended_a_replaced_inspection_is_dropped(service: Service, event: Event) -> None:
    service.boot()
    service.submit(event)
    node = service.start()
    service.work()
    assert (service.node.state, service.node.inspection) == (State.WAITING, node.inspection)
    dropped = [entry for entry in service.journal if entry.step == "dropped"]
    assert [entry.reason for entry in dropped] == ["stale-request"]
    assert service.machine.power is Power.ON


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT])
def test_a_worker_that_is_ending_an_inspection_does_not_end_the_one_that_replaces_it(
    service: Service, event: Event
) -> None:
    service.boot()
    service.submit(event)
    claim = service.claim()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    attempt = service.worker.begin_attempt(locked, decision)
    outcome = service.worker.run(attempt)
    assert service.machine.power is Power.OFF
    node = service.start()
    assert service.worker.commit(attempt, outcome) is None
    assert (service.node.state, service.inspection.reason) == (State.STARTING, None)
    service.work()
    assert (service.node.state, service.node.inspection) == (State.WAITING, node.inspection)
    assert service.machine.commands[-2:] == ["boot pxe", "power on"]


def test_a_worker_that_dies_while_an_inspection_is_restarted_loses_nothing(service: Service) -> None:
    service.boot()
    node = service.start()
    service.beat("m2")
    claim = service.claim("m2")
    assert claim is not None
    service.kill("m2")
    service.work()
    assert (service.node.state, service.node.inspection) == (State.WAITING, node.inspection)
    assert service.machine.commands.count("power on") == 2
