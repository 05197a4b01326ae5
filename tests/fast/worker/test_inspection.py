"""One inspection through the worker: the happy path, and every way in which it may end early."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.callback_secret import Proof, judge, live
from ferroscope.core.delivery import IllegalEventError, Run
from ferroscope.core.model import Entry
from ferroscope.core.states import Event, Provision, State
from ferroscope.db.transaction import Transaction
from ferroscope.worker.run import run
from tests.fast.worker.conftest import NODE, Service, conclude, settings
from tests.support import examples


def test_an_inspection_goes_from_the_operator_to_a_finished_node(service: Service) -> None:
    assert service.start().state is State.STARTING
    service.work()
    assert service.node.state is State.WAITING
    assert service.node.provision_state == "inspect wait"
    assert service.machine.commands == ["boot pxe", "power on"]
    service.call_back(serial="x")
    service.work()
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
    service.start()
    service.work()
    service.call_back()
    service.work()
    wanted = ["requested", "boot device", "power on", "waiting", "requested", "processed", "power off", "finished"]
    steps = service.steps
    assert [step for step in steps if step in wanted] == wanted
    assert all(entry.process for entry in service.journal)


def test_a_machine_that_is_on_is_powered_off_first(service: Service) -> None:
    service.machine.power = Power.ON
    service.start()
    service.work()
    assert service.machine.commands == ["power off", "boot pxe", "power on"]


def test_unmanaged_boot_leaves_the_machine_alone(service: Service) -> None:
    service.start(manage_boot=False)
    service.work()
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == []


def test_any_number_of_starts_reboot_once(service: Service) -> None:
    for _ in range(5):
        service.start()
    assert len(service.pending) == 1
    service.work()
    assert service.machine.commands.count("power on") == 1


def test_a_start_while_waiting_is_a_new_inspection_that_replaces_the_one_that_waits(service: Service) -> None:
    service.start(secret="first", secret_delivery="boot-script")
    service.work()
    old = service.inspection
    node = service.start(secret="second", secret_delivery="boot-script")
    assert (node.state, node.provision_state) == (State.STARTING, Provision.INSPECTING)
    assert node.inspection != old.uuid
    ended = service.store.read(lambda tx: tx.inspections.get(old.uuid))
    assert (ended.state, ended.reason, ended.finished_at is not None) == (State.ERROR, "restarted", True)
    assert node.inspection in (ended.error or "")
    assert live(ended) is None
    assert judge("required", service.inspection, "first").proof is Proof.WRONG
    service.work()
    assert service.machine.commands == ["boot pxe", "power on", "power off", "boot pxe", "power on"]
    service.call_back()
    service.work()
    assert (service.node.state, service.node.inspection, service.node.last_error) == (
        State.FINISHED,
        node.inspection,
        None,
    )
    assert [entry.inspection for entry in service.journal if entry.step == "replaced"] == [old.uuid]


def test_a_start_while_waiting_is_refused_once_the_machine_has_called_back(service: Service) -> None:
    service.start()
    service.work()
    ident = service.node.inspection or ""
    service.store.write(lambda tx: tx.inspections.update(ident, digest="d"))
    service.call_back()
    with pytest.raises(transition.Refused, match="called back"):
        service.start()
    service.work()
    assert (service.node.state, service.node.inspection) == (State.FINISHED, ident)


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT])
def test_what_would_have_ended_a_replaced_inspection_is_dropped(service: Service, event: Event) -> None:
    service.start()
    service.work()
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
    service.start()
    service.work()
    service.submit(event)
    claim = service.worker.get()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    attempt, journal = service.worker.begun(locked, decision)
    outcome = run(attempt, journal, service.worker.services, service.worker.tasks)
    assert service.machine.power is Power.OFF
    node = service.start()
    assert conclude(service.worker, attempt, journal, outcome) is None
    assert (service.node.state, service.inspection.reason) == (State.STARTING, None)
    service.work()
    assert (service.node.state, service.node.inspection) == (State.WAITING, node.inspection)
    assert service.machine.commands[-2:] == ["boot pxe", "power on"]


def test_a_worker_that_dies_while_an_inspection_is_restarted_loses_nothing(service: Service) -> None:
    service.start()
    service.work()
    node = service.start()
    dead = service.new_worker("m2")
    claim = dead.get()
    assert claim is not None
    service.kill("m2")
    service.work()
    assert (service.node.state, service.node.inspection) == (State.WAITING, node.inspection)
    assert service.machine.commands.count("power on") == 2


def test_a_start_from_available_is_refused_with_what_would_do(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.AVAILABLE))
    with pytest.raises(transition.Refused, match="manageable"):
        service.start()


def test_a_callback_that_overtakes_the_worker_is_not_lost(service: Service) -> None:
    service.start()
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED


def test_a_ramdisk_error_fails_with_its_message_and_powers_off(service: Service) -> None:
    service.start()
    service.work()
    service.call_back(error="no disks")
    service.work()
    node = service.node
    assert (node.state, node.provision_state) == (State.ERROR, "inspect failed")
    assert "no disks" in (node.last_error or "")
    assert service.inspection.reason == "ramdisk-error"
    assert node.power_state == Power.OFF


def test_a_pipeline_that_fails_half_way_changes_nothing_else(service: Service) -> None:
    service.start()
    service.work()
    inventory = {"interfaces": [{"name": "eth0", "mac_address": "02:00:00:00:00:01"}], "cpu": {}}
    service.call_back(inventory)
    service.work()
    assert service.node.state is State.ERROR
    assert service.ports == []
    assert service.node.properties == {}
    ident = service.node.inspection or ""
    kept = service.store.read(lambda tx: tx.data.load(ident, ("inventory", "plugin_data")))
    assert set(kept) == {"inventory"}


def test_a_second_different_callback_during_processing_ends_in_error(service: Service) -> None:
    service.start()
    service.work()
    service.call_back()
    service.submit(Event.CONTINUE, {"digest": "other"})
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "conflicting-callback"
    assert service.machine.power is Power.OFF
    assert service.pending == []


@pytest.mark.parametrize("stage", ["starting", "waiting", "processing"])
def test_abort_works_from_every_active_state(service: Service, stage: str) -> None:
    service.start()
    if stage != "starting":
        service.work()
    if stage == "processing":
        service.call_back()
    service.submit(Event.ABORT)
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "aborted"
    assert service.machine.power is Power.OFF


def _abort_in_the_middle(service: Service) -> None:
    """Carry out one request, and ask for an abort when its task has run and nothing is committed yet."""
    claim = service.worker.get()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    assert isinstance(decision, Run)
    attempt, journal = service.worker.begun(locked, decision)
    outcome = run(attempt, journal, service.worker.services, service.worker.tasks)
    service.submit(Event.ABORT)
    assert conclude(service.worker, attempt, journal, outcome) is None


def test_what_was_processed_while_an_abort_came_is_discarded(service: Service) -> None:
    service.start()
    service.work()
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
    service.start()
    service.work()
    service.call_back()
    service.work()
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
    service.submit(Event.ABORT)
    service.work()
    service.start()
    service.work()
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.node.last_error is None


def test_reapply_runs_the_hooks_again_and_leaves_the_power_alone(service: Service) -> None:
    service.start()
    service.work()
    service.call_back()
    service.work()
    commands = list(service.machine.commands)
    service.reapply()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == commands


def test_an_operators_edit_during_the_inspection_survives_it(service: Service) -> None:
    service.start()
    service.work()
    service.call_back()
    claim = service.worker.get()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    attempt, journal = service.worker.begun(locked, decision)
    outcome = run(attempt, journal, service.worker.services, service.worker.tasks)

    def edit(tx: object) -> None:
        node = tx.nodes.get(NODE)  # type: ignore[attr-defined]
        node.properties["rack"] = "r1"
        tx.nodes.update(node)  # type: ignore[attr-defined]

    service.store.write(edit)
    conclude(service.worker, attempt, journal, outcome)
    assert service.node.properties == {"rack": "r1", "cpu_arch": "x86_64"}


def test_a_transient_bmc_error_is_tried_again(service: Service) -> None:
    errors = [BmcError("busy", transient=True)]
    service.machine.fail = lambda _command: errors.pop() if errors else None
    service.start()
    service.work()
    assert service.node.state is State.WAITING
    assert "retry" in service.steps


def test_transient_errors_end_after_three_attempts_with_the_reason(service: Service) -> None:
    service.machine.fail = lambda _command: BmcError("no answer", transient=True)
    service.start()
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "bmc-unreachable"
    assert "3 attempts" in (service.node.last_error or "")


def test_a_permanent_bmc_error_fails_at_once(service: Service) -> None:
    service.machine.fail = lambda command: BmcError("denied", transient=False) if command == "power on" else None
    service.start()
    service.work()
    assert service.inspection.reason == "bmc-refused"
    assert "retry" not in service.steps


def test_a_power_state_that_never_follows_is_an_error_not_a_hang(service: Service) -> None:
    service.machine.set_power = lambda *_: None  # type: ignore[method-assign]
    service.start()
    service.work()
    assert service.node.state is State.ERROR
    assert "accepted power on, and the machine is still off" in (service.node.last_error or "")
    assert service.inspection.reason == "power-failed"


def test_a_bmc_that_fails_at_the_end_does_not_fail_the_inspection(service: Service) -> None:
    service.start()
    service.work()
    service.machine.fail = lambda _command: BmcError("gone", transient=True)
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED
    assert any(entry.severity == "WARNING" and "gone" in entry.message for entry in service.journal)


def test_a_bmc_that_hesitates_once_at_the_end_still_powers_off(service: Service) -> None:
    service.start()
    service.work()
    errors = [BmcError("busy", transient=True)]
    service.machine.fail = lambda _command: errors.pop() if errors else None
    service.call_back()
    service.work()
    assert service.machine.power is Power.OFF


def test_an_unknown_driver_fails_with_its_name(service: Service) -> None:
    def rename(tx: object) -> None:
        node = tx.nodes.get(NODE)  # type: ignore[attr-defined]
        node.driver = "nothing"
        tx.nodes.update(node)  # type: ignore[attr-defined]

    service.store.write(rename)
    service.start()
    service.work()
    assert "nothing" in (service.node.last_error or "")
    assert service.inspection.reason == "driver-unknown"


def test_power_off_can_be_switched_off() -> None:
    service = Service(settings(power_off=False))
    service.start()
    service.work()
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.machine.power is Power.ON


@pytest.mark.parametrize("power_off", [False, True])
@pytest.mark.parametrize("transient", [False, True])
@pytest.mark.parametrize("was", [Power.ON, Power.OFF])
def test_a_machine_that_was_on_is_not_left_off_by_a_start_that_fails(
    was: Power, transient: bool, power_off: bool
) -> None:
    service = Service(settings(power_off=power_off))
    service.machine.power = was
    error = BmcError("HTTP 404", transient=transient)
    service.machine.fail = lambda command: error if command.startswith("boot") else None
    service.start()
    service.work()
    assert service.node.state is State.ERROR
    assert service.machine.power is was
    told = [entry.message for entry in service.journal if "is on again" in entry.message]
    assert len(told) == (was is Power.ON)


@pytest.mark.parametrize(
    ("was", "dies_at", "commands"),
    [
        (Power.ON, "get", []),
        (Power.OFF, "get", []),
        (Power.ON, "boot", ["power off", "power on"]),
        # It is in the ramdisk, or about to boot it: it is powered off, and on again if its own system ran before.
        (Power.ON, "boots", ["power off", "boot pxe", "power on", "power off", "power on"]),
        (Power.OFF, "boots", ["boot pxe", "power on", "power off"]),
    ],
)
def test_a_start_whose_workers_all_died_is_undone_as_far_as_it_got(
    service: Service, was: Power, dies_at: str, commands: list[str]
) -> None:
    service.machine.power = was

    def die(command: str) -> None:
        booted = service.machine.commands[-1:] == ["power on"]
        if command == dies_at or (dies_at == "boots" and booted):
            raise KeyboardInterrupt

    service.start()
    for number in range(service.settings.worker.max_attempts):
        service.machine.fail = die
        with pytest.raises(KeyboardInterrupt):
            service.work()
        service.kill(f"m{number + 1}")
        service.worker = service.new_worker(f"m{number + 2}")
    service.machine.fail = lambda _command: None
    service.work()
    assert service.inspection.reason == "attempts-exhausted"
    assert service.machine.commands == commands
    assert service.machine.power is was


def test_verify_moves_an_enrolled_node_to_manageable(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.VERIFYING, "manageable"))
    service.submit(Event.VERIFY)
    service.work()
    assert service.node.provision_state is Provision.MANAGEABLE
    assert service.node.power_state == Power.OFF


def test_verify_takes_the_node_back_to_enroll_with_the_reason(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.VERIFYING, "manageable"))
    service.machine.fail = lambda _command: BmcError("wrong password", transient=False)
    service.submit(Event.VERIFY)
    service.work()
    assert service.node.provision_state is Provision.ENROLL
    assert "wrong password" in (service.node.last_error or "")


@pytest.mark.parametrize(
    ("target", "commands"),
    [("power on", ["power on"]), ("power off", []), ("rebooting", ["power on"]), ("soft power off", [])],
)
def test_power_commands_bring_the_machine_there(service: Service, target: str, commands: list[str]) -> None:
    service.submit(Event.SET_POWER, {"target": target})
    service.work()
    assert service.machine.commands == commands
    assert service.node.target_power_state is None


def test_commands_are_refused_during_an_inspection(service: Service) -> None:
    service.start()
    with pytest.raises(IllegalEventError):
        service.submit(Event.SET_POWER, {"target": "power off"})


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
    service.call_back(**({"error": "it was ill"} if end == "failed" else {}))
    service.work()
    node = service.node
    assert node.state is (State.FINISHED if end == "finished" else State.ERROR)
    assert node.provision_state is rest
    assert (service.machine.power, service.machine.commands) == (Power.ON, [])


def _refused(service: Service, message: str, **more: Any) -> None:
    _noted(service, "callback-refused", message, **more)


def _noted(service: Service, step: str, message: str, **more: Any) -> None:
    entry = Entry(node=NODE, inspection=service.node.inspection, step=step, message=message, process="api", **more)
    service.store.write(lambda tx: tx.journal.append([entry]))


def test_a_time_out_says_that_the_machine_called_and_why_it_was_refused(service: Service) -> None:
    service.start()
    service.work()
    _refused(service, "HTTP 400: first")
    _refused(service, "HTTP 400: no interfaces (from 192.0.2.7)", reason="callback-invalid")
    service.submit(Event.TIMEOUT)
    service.work()
    assert service.inspection.reason == "callback-refused"
    said = str(service.node.last_error)
    assert said.startswith("callback refused: HTTP 400: no interfaces")
    assert all(word in said for word in ("HTTP 400: no interfaces", "192.0.2.7", "UTC"))


def test_a_time_out_says_that_the_machine_has_loaded_its_boot_script_so_that_nobody_searches_the_boot_network(
    service: Service,
) -> None:
    service.start()
    service.work()
    _noted(service, "boot-script", "the boot script of the inspection was loaded from 192.0.2.7")
    service.submit(Event.TIMEOUT)
    service.work()
    assert service.inspection.reason == "ramdisk-silent"
    assert all(word in str(service.node.last_error) for word in ("no callback", "boot script", "UTC"))


def test_a_call_that_was_refused_counts_for_more_than_the_boot_script_before_or_after_it(service: Service) -> None:
    service.start()
    service.work()
    _noted(service, "boot-script", "the boot script of the inspection was loaded from 192.0.2.7")
    _refused(service, "HTTP 400: first")
    _noted(service, "boot-script", "the boot script of the inspection was loaded from 192.0.2.8")
    service.submit(Event.TIMEOUT)
    service.work()
    assert service.inspection.reason == "callback-refused"


def test_a_call_that_was_refused_in_an_inspection_before_says_nothing_of_this_one(service: Service) -> None:
    service.start()
    service.work()
    _refused(service, "HTTP 400: first")
    service.submit(Event.ABORT)
    service.work()
    service.start()
    service.work()
    service.submit(Event.TIMEOUT)
    service.work()
    assert service.inspection.reason == "timeout"


def test_a_time_out_names_the_machine_in_the_inbox_that_has_the_same_bmc(service: Service) -> None:
    twin = examples.node(auto_discovered=True, inbox=True)
    service.store.write(lambda tx: tx.nodes.add(twin))
    service.start()
    service.work()
    for node in (twin.uuid, NODE):
        service.store.write(lambda tx, node=node: tx.addresses.set_bmc(node, ["192.0.2.9"]))  # type: ignore[misc]
    service.submit(Event.TIMEOUT)
    service.work()
    assert service.inspection.reason == "callback-refused"
    assert twin.uuid in str(service.node.last_error)


@pytest.mark.parametrize("callers", [0, 1, 2])
def test_a_time_out_begins_with_its_cause_and_names_the_unknown_machines_that_called(
    service: Service, callers: int
) -> None:
    service.store.write(lambda tx: tx.nodes.add(examples.node(auto_discovered=True, inbox=True)))  # long before
    service.start()
    service.work()
    for _ in range(callers):
        late = examples.node(auto_discovered=True, inbox=True, created_at=service.clock.time())
        service.store.write(lambda tx, late=late: tx.nodes.add(late))  # type: ignore[misc]
    service.submit(Event.TIMEOUT)
    service.work()
    said = str(service.node.last_error)
    assert service.inspection.reason == "timeout"
    assert said.startswith("no callback from the ramdisk within ")
    assert ("called: ferroscope node inbox" in said) == bool(callers)
    assert ("2 unknown machines" in said) == (callers == 2)


def test_data_of_too_many_parts_fails_its_inspection_and_is_not_decoded(service: Service) -> None:
    service.start()
    service.work()
    service.call_back()
    node = service.node
    bomb = b'{"interfaces":[],"x":[' + b"[]," * 60_000 + b"0]}"
    service.store.write(lambda tx: tx.data.save(str(node.inspection), node.uuid, {"inventory": bomb}))
    service.work()
    assert service.node.state is State.ERROR
    assert "data-too-large" in {entry.reason for entry in service.journal}
