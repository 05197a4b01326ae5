"""One inspection through the worker: the happy path, and every way in which it may end early."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope import transition
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.store import packed
from ferroscope.core.delivery import Run
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope_client.core.states import Provision, State
from tests.fast.worker.conftest import NODE, Service
from tests.support.stores import compressions


def test_an_inspection_goes_from_the_operator_to_a_finished_node(service: Service) -> None:
    assert service.start().state is State.STARTING
    service.work()
    assert service.node.state is State.WAITING
    assert service.node.provision_state == "inspect wait"
    assert service.machine.commands == ["boot pxe", "power on"]
    service.finish(serial="x")
    node = service.node
    assert (node.state, node.provision_state) == (State.FINISHED, Provision.MANAGEABLE)
    assert node.properties["cpu_arch"] == "x86_64"
    assert node.power_state == Power.OFF
    assert node.inspection_finished_at is not None
    assert node.last_error is None
    assert service.ports == ["02:00:00:00:00:01"]
    assert service.machine.commands[-1] == "power off"
    data = service.store.read(lambda tx: tx.data.load(node.inspection or "", ("inventory", "plugin_data")))
    assert msgspec.json.decode(data["plugin_data"])["serial"] == "x"
    assert "valid_interfaces" in msgspec.json.decode(data["plugin_data"])


def test_the_journal_tells_the_whole_story_in_order(service: Service) -> None:
    service.inspect()
    wanted = ["requested", "boot device", "power on", "waiting", "requested", "processed", "power off", "finished"]
    steps = service.steps
    assert [step for step in steps if step in wanted] == wanted
    assert all(entry.process for entry in service.journal)


def test_a_machine_that_is_on_is_powered_off_first(service: Service) -> None:
    service.machine.power = Power.ON
    service.boot()
    assert service.machine.commands == ["power off", "boot pxe", "power on"]


def test_unmanaged_boot_leaves_the_machine_alone(service: Service) -> None:
    service.boot(manage_boot=False)
    service.finish()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == []


def test_any_number_of_starts_reboot_once(service: Service) -> None:
    for _ in range(5):
        service.start()
    assert len(service.pending) == 1
    service.work()
    assert service.machine.commands.count("power on") == 1


def test_a_start_from_available_is_refused_with_what_would_do(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.AVAILABLE))
    with pytest.raises(transition.NotInspectableError, match="manageable"):
        service.start()


def test_a_callback_that_overtakes_the_worker_is_not_lost(service: Service) -> None:
    service.start()
    service.finish()
    assert service.node.state is State.FINISHED


def test_a_ramdisk_error_fails_with_its_message_and_powers_off(service: Service) -> None:
    service.boot()
    service.finish(error="no disks")
    node = service.node
    assert (node.state, node.provision_state) == (State.ERROR, "inspect failed")
    assert "no disks" in (node.last_error or "")
    assert service.inspection.reason == "ramdisk-error"
    assert node.power_state == Power.OFF


def test_a_pipeline_that_fails_half_way_changes_nothing_else(service: Service) -> None:
    service.boot()
    inventory = {"interfaces": [{"name": "eth0", "mac_address": "02:00:00:00:00:01"}], "cpu": {}}
    service.finish(inventory)
    assert service.node.state is State.ERROR
    assert service.ports == []
    assert service.node.properties == {}
    ident = service.node.inspection or ""
    kept = service.store.read(lambda tx: tx.data.load(ident, ("inventory", "plugin_data")))
    assert set(kept) == {"inventory"}


@pytest.mark.parametrize("stage", ["starting", "waiting", "processing"])
def test_abort_works_from_every_active_state(service: Service, stage: str) -> None:
    service.start()
    if stage != "starting":
        service.work()
    if stage == "processing":
        service.call_back()
    service.carry_out(Event.ABORT)
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "aborted"
    assert service.machine.power is Power.OFF


def _abort_in_the_middle(service: Service) -> None:
    """Carry out one request, and ask for an abort when its task has run and nothing is committed yet."""
    claim = service.claim()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    assert isinstance(decision, Run)
    attempt = service.worker.begin_attempt(locked, decision)
    outcome = service.worker.run(attempt)
    service.submit(Event.ABORT)
    assert service.worker.commit(attempt, outcome) is None


def test_what_was_processed_while_an_abort_came_is_discarded(service: Service) -> None:
    service.boot()
    service.call_back()
    _abort_in_the_middle(service)
    assert (service.node.properties, service.ports) == ({}, [])
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "aborted"
    assert service.machine.power is Power.OFF
    ident = service.node.inspection or ""
    kept = service.store.read(lambda tx: tx.data.load(ident, ("inventory", "plugin_data")))
    assert set(kept) == {"inventory"}


def test_an_abort_while_stored_data_is_processed_leaves_the_machine_alone(service: Service) -> None:
    service.inspect()
    service.machine.power = Power.ON
    service.reapply()
    _abort_in_the_middle(service)
    assert service.node.state is State.REAPPLYING
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "aborted"
    assert service.machine.power is Power.ON


def test_an_inspection_can_start_again_after_an_error(service: Service) -> None:
    service.start()
    service.carry_out(Event.ABORT)
    service.inspect()
    assert service.node.state is State.FINISHED
    assert service.node.last_error is None


def test_reapply_runs_the_hooks_again_and_leaves_the_power_alone(service: Service) -> None:
    service.inspect()
    commands = list(service.machine.commands)
    service.reapply()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == commands


def test_an_operators_edit_during_the_inspection_survives_it(service: Service) -> None:
    service.boot()
    service.call_back()
    claim = service.claim()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    attempt = service.worker.begin_attempt(locked, decision)
    outcome = service.worker.run(attempt)

    def edit(tx: object) -> None:
        node = tx.nodes.get(NODE)  # type: ignore[attr-defined]
        node.properties["rack"] = "r1"
        tx.nodes.update(node)  # type: ignore[attr-defined]

    service.store.write(edit)
    service.worker.commit(attempt, outcome)
    assert service.node.properties == {"rack": "r1", "cpu_arch": "x86_64"}


def test_verify_moves_an_enrolled_node_to_manageable(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.VERIFYING, "manageable"))
    service.carry_out(Event.VERIFY)
    assert service.node.provision_state is Provision.MANAGEABLE
    assert service.node.power_state == Power.OFF


@pytest.mark.parametrize(
    ("target", "commands"),
    [("power on", ["power on"]), ("power off", []), ("rebooting", ["power on"]), ("soft power off", [])],
)
def test_power_commands_bring_the_machine_there(service: Service, target: str, commands: list[str]) -> None:
    service.carry_out(Event.SET_POWER, {"target": target})
    assert service.machine.commands == commands
    assert service.node.target_power_state is None


@pytest.mark.parametrize("rest", [Provision.ENROLL, Provision.AVAILABLE])
@pytest.mark.parametrize("end", ["finished", "failed", "aborted"])
def test_a_machine_that_called_unasked_keeps_its_power_and_its_provision_state(
    service: Service, rest: Provision, end: str
) -> None:
    service.machine.power = Power.ON

    def enroll(tx: Transaction) -> None:
        node = transition.rest(tx, tx.nodes.get(NODE), rest)
        transition.enroll(tx, node, "it called", inspection="22222222-2222-4222-8222-222222222222", process="api")

    service.store.write(enroll)
    if end == "aborted":
        service.submit(Event.ABORT)
    service.finish(**({"error": "it was ill"} if end == "failed" else {}))
    node = service.node
    assert node.state is (State.FINISHED if end == "finished" else State.ERROR)
    assert node.provision_state is rest
    assert (service.machine.power, service.machine.commands) == (Power.ON, [])


def test_results_are_compressed_before_the_transaction_that_stores_them(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.boot()
    service.call_back()
    found = compressions(service.store, monkeypatch)
    service.work()
    assert service.node.state is State.FINISHED
    assert found == [False]


def test_data_of_too_many_parts_fails_its_inspection_and_is_not_decoded(service: Service) -> None:
    service.boot()
    service.call_back()
    node = service.node
    bomb = b'{"interfaces":[],"x":[' + b"[]," * 60_000 + b"0]}"
    service.store.write(lambda tx: tx.data.save(str(node.inspection), node.uuid, packed({"inventory": bomb})))
    service.work()
    assert service.node.state is State.ERROR
    assert "data-too-large" in {entry.reason for entry in service.journal}
