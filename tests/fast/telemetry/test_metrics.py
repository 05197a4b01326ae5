"""The meter of a process, and the overview of the service."""

from __future__ import annotations

import contextlib
from pathlib import Path

from prometheus_client import CollectorRegistry

from ferroscope.contracts.telemetry import FAILOVER_PROBLEMS, SILENT, Moved
from ferroscope.core.problems import Facts
from ferroscope.core.states import TRANSITIONS, Event
from ferroscope.db import Store, Transaction
from ferroscope.telemetry.metrics import Metrics, render
from ferroscope.telemetry.overview import LABELS, OVERVIEW, Overview
from ferroscope_client.core.states import State
from tests.support import examples
from tests.support.stores import open_store


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_every_row_of_the_table_is_counted_from_zero() -> None:
    meter = Metrics(CollectorRegistry())
    for row in TRANSITIONS:
        labels = {"source": row.source, "event": row.event, "target": row.target}
        assert _value(meter.registry, "ferroscope_transitions_total", **labels) == 0
    meter.record_transition(Moved(TRANSITIONS[0], examples.node()))
    assert (
        _value(meter.registry, "ferroscope_transitions_total", source="none", event="inspect", target="starting") == 1
    )


def test_what_is_reported_is_counted() -> None:
    meter = Metrics(CollectorRegistry())
    meter.record_attempt(Event.INSPECT, "done", 0.3)
    meter.record_response("GET", "/v1/nodes", 200, 0.002)
    meter.record_database_error("busy")
    meter.record_failed_renewal("periodic/timeouts")
    meter.record_failed_step("periodic/timeouts")
    registry = meter.registry
    assert _value(registry, "ferroscope_requests_total", event="inspect", outcome="done") == 1
    assert _value(registry, "ferroscope_request_seconds_sum", event="inspect") == 0.3
    assert _value(registry, "ferroscope_http_requests_total", method="GET", route="/v1/nodes", status="200") == 1
    assert _value(registry, "ferroscope_database_errors_total", kind="busy") == 1
    for name in ("lease_renewal_failures", "periodic_step_failures"):
        assert _value(registry, f"ferroscope_{name}_total", lease="periodic/timeouts") == 1


def test_a_rolled_back_transition_is_not_counted() -> None:
    meter = Metrics(CollectorRegistry())
    store = open_store(meter=meter)
    store.write(lambda tx: tx.transitions.append(Moved(TRANSITIONS[0], examples.node())))
    with contextlib.suppress(ZeroDivisionError):
        store.write(lambda tx: (tx.transitions.append(Moved(TRANSITIONS[0], examples.node())), 1 / 0))
    labels = {"source": "none", "event": "inspect", "target": "starting"}
    assert _value(meter.registry, "ferroscope_transitions_total", **labels) == 1


def _facts(tx: Transaction) -> Facts:
    return Facts(
        now=tx.now,
        members=tx.members.list(),
        leases=tx.leases.list(),
        backlog=tx.statistics.backlog(),
        census=tx.statistics.fleet().census,
    )


def test_the_overview_shows_the_whole_service() -> None:
    store: Store = open_store()
    node = examples.node(state=State.WAITING, hardware={"health": "warning", "failing_drives": 3})
    store.write(lambda tx: tx.nodes.add(node))
    store.write(lambda tx: tx.requests.put(examples.request(node, Event.ABORT)))
    busy = {"lanes": {"bmc": {"slots": 16, "busy": 3}}}
    store.write(lambda tx: tx.members.beat(examples.member("a", detail=busy), 60.0))
    store.write(lambda tx: tx.members.beat(examples.member("b"), 0.0))
    store.write(lambda tx: tx.leases.acquire("periodic/timeouts", "a", 6.0))
    registry = CollectorRegistry()
    registry.register(Overview(store, _facts))
    assert _value(registry, "ferroscope_database_up") == 1
    assert _value(registry, "ferroscope_queue_requests", event="abort", claim="waiting") == 1
    assert _value(registry, "ferroscope_queue_requests", event="inspect", claim="waiting") == 0
    assert _value(registry, "ferroscope_nodes", state="waiting", provision_state="enroll") == 1
    assert _value(registry, "ferroscope_nodes_by_health", health="warning") == 1
    assert _value(registry, "ferroscope_nodes_by_health", health="ok") == 0
    assert _value(registry, "ferroscope_nodes_with_failing_drives") == 1
    assert _value(registry, "ferroscope_nodes_deviating") == 0
    assert _value(registry, "ferroscope_members", role="worker", state="alive") == 1
    assert _value(registry, "ferroscope_members", role="worker", state="dead") == 1
    assert _value(registry, "ferroscope_problems", code="member-dead", verdict="wrong") == 1
    assert _value(registry, "ferroscope_worker_slots", lane="bmc") == 16
    assert _value(registry, "ferroscope_worker_slots_busy", lane="bmc") == 3
    assert _value(registry, "ferroscope_lease_held", lease="periodic/timeouts") == 1
    assert _value(registry, "ferroscope_lease_epoch", lease="periodic/timeouts") == 1
    shown = {line.split()[2] for line in render(registry).decode().splitlines() if line.startswith("# HELP")}
    assert shown == set(OVERVIEW)
    assert set(LABELS) <= set(OVERVIEW)


def test_without_its_database_the_overview_says_just_that() -> None:
    store = open_store()
    Path(str(store.engine.url.database)).unlink()
    registry = CollectorRegistry()
    registry.register(Overview(store, _facts))
    assert _value(registry, "ferroscope_database_up") == 0
    assert _value(registry, "ferroscope_clock_skew_seconds") is None


def test_each_problem_of_failover_is_there_and_one_that_is_over_is_zero() -> None:
    meter = Metrics(CollectorRegistry())

    def numbers() -> dict[str, float | None]:
        return {
            code: meter.registry.get_sample_value("ferroscope_failover_problems", {"cluster": "default", "code": code})
            for code in FAILOVER_PROBLEMS
        }

    assert set(numbers().values()) == {None}
    meter.set_failover_problems("default", {"stuck": 2, "paused": 1})
    assert numbers() == dict.fromkeys(FAILOVER_PROBLEMS, 0) | {"stuck": 2, "paused": 1}
    meter.set_failover_problems("default", {"left-off": 1})
    assert numbers() == dict.fromkeys(FAILOVER_PROBLEMS, 0) | {"left-off": 1}
    SILENT.set_failover_problems("default", {"stuck": 1})
