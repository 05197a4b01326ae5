"""What an ended inspection adds to the metrics: its reason, the duration of its phases, changed hardware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry

from ferroscope.contracts.telemetry import Moved
from ferroscope.core.model import Inspection
from ferroscope.core.notification import ChangeView
from ferroscope.core.states import Event, Transition
from ferroscope.hardware.diff import ChangeKind
from ferroscope.telemetry.metrics import Metrics
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.hardware.search_fields import KINDS
from tests.support import examples
from tests.support.stores import open_store

NODE = examples.node()
STARTED = {"waiting_since": 104.0, "processing_since": 164.0, "queued": 2.0}


@pytest.fixture
def meter() -> Metrics:
    return Metrics(CollectorRegistry())


def ended(meter: Metrics, target: State, *, replaced: Inspection | None = None, **fields: Any) -> None:
    transition = Transition(source=State.PROCESSING, event=Event.FINISH, target=target)
    meter.record_transition(Moved(transition, NODE, inspection(target, **fields), replaced))


def inspection(state: State, **fields: Any) -> Inspection:
    return Inspection(uuid="i", node=NODE.uuid, state=state, started_at=100.0, **fields)


def value(meter: Metrics, name: str, **labels: str) -> float | None:
    return meter.registry.get_sample_value(f"ferroscope_{name}", labels)


def values(meter: Metrics, name: str, labels: Sequence[str]) -> dict[tuple[str, ...], float]:
    """Return the samples of this name that are not 0, by these labels."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in meter.registry.collect()
        for sample in family.samples
        if sample.name == f"ferroscope_{name}" and sample.value
    }


def test_every_reason_is_counted_from_zero_and_no_other_text_becomes_a_label(meter: Metrics) -> None:
    for reason in Reason:
        assert value(meter, "inspection_failures_total", reason=reason) == 0
    ended(meter, State.ERROR, finished_at=110.0, reason="bmc-unreachable", error="so it was")
    ended(meter, State.ERROR, finished_at=110.0, reason="struck-by-lightning")
    ended(meter, State.ERROR, finished_at=110.0)
    ended(meter, State.FINISHED, finished_at=170.0)
    counted = values(meter, "inspection_failures_total", ["reason"])
    assert counted == {("bmc-unreachable",): 1, ("other",): 2}


def test_a_replaced_inspection_is_a_failure_of_its_own(meter: Metrics) -> None:
    old = inspection(State.ERROR, waiting_since=104.0, finished_at=110.0, reason="restarted")
    ended(meter, State.STARTING, replaced=old)
    assert values(meter, "inspection_failures_total", ["reason"]) == {("restarted",): 1}
    assert value(meter, "inspection_phase_seconds_sum", phase="waiting", result="error") == 6.0


def test_each_phase_that_was_reached_is_observed_once(meter: Metrics) -> None:
    ended(meter, State.FINISHED, finished_at=165.5, **STARTED)
    ended(meter, State.ERROR, waiting_since=104.0, finished_at=110.0, reason="timeout")
    labels = ["phase", "result"]
    assert values(meter, "inspection_phase_seconds_sum", labels) == {
        ("queue", "finished"): 2.0,
        ("starting", "finished"): 4.0,
        ("waiting", "finished"): 60.0,
        ("processing", "finished"): 1.5,
        ("starting", "error"): 4.0,
        ("waiting", "error"): 6.0,
    }
    assert set(values(meter, "inspection_phase_seconds_count", labels).values()) == {1.0}
    assert values(meter, "inspection_seconds_sum", ["result"]) == {("finished",): 65.5, ("error",): 10.0}


def test_stored_data_that_is_processed_again_has_no_phases_of_a_machine(meter: Metrics) -> None:
    ended(meter, State.FINISHED, finished_at=101.0, reapplies="another")
    assert values(meter, "inspection_seconds_count", ["result"]) == {}
    ended(meter, State.ERROR, finished_at=101.0, reapplies="another", reason="hook-failed")
    assert values(meter, "inspection_failures_total", ["reason"]) == {("hook-failed",): 1}


def test_an_inspection_that_goes_on_is_not_observed(meter: Metrics) -> None:
    ended(meter, State.STARTING)
    assert values(meter, "inspection_seconds_count", ["result"]) == {}


def test_changes_of_the_hardware_are_counted_by_kind_once_they_are_committed(meter: Metrics) -> None:
    for kind in KINDS:
        for what in get_args(ChangeKind):
            assert value(meter, "hardware_changes_total", kind=kind, what=what) == 0
    changes = [
        ChangeView(what="removed", kind="dimm", where="A1", text="A1 is gone"),
        ChangeView(what="changed", kind="node", where="", field="firmware", text="1 is 2"),
        ChangeView(what="changed", kind="node", where="", field="memory", text="3 is 4"),
    ]
    store = open_store(meter=meter)
    store.write(lambda tx: tx.hardware_changes.extend(changes))
    with pytest.raises(ZeroDivisionError):
        store.write(lambda tx: (tx.hardware_changes.extend(changes), 1 / 0))
    counted = values(meter, "hardware_changes_total", ["kind", "what"])
    assert counted == {("dimm", "removed"): 1, ("node", "changed"): 2}
