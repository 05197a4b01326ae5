"""Expected hardware in an inspection: a deviation is noted, or fails it, and is kept on the node in both cases."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contracts.store import Query
from ferroscope_client.core.expectation import Expectation
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service, settings


@pytest.fixture
def service() -> Service:
    return Service(settings())


def expect(service: Service, *conditions: str, **fields: Any) -> None:
    given = [Expectation(name="all", expect=list(conditions), **fields)] if conditions else []
    service.store.write(lambda tx: tx.expectations.replace(given))


def inspect(service: Service) -> None:
    service.boot()
    service.finish(serial="x")


def steps(service: Service) -> list[tuple[str | None, str]]:
    entries = service.store.read(lambda tx: tx.journal.list(Query(filters={"node": service.node.uuid})))
    return [(entry.reason, entry.message) for entry in entries if entry.step in ("expectations", "failed")]


def test_a_deviation_is_noted_until_it_is_gone(service: Service) -> None:
    expect(service, "has gpu", "has nic")
    inspect(service)
    assert service.node.state is State.FINISHED
    assert service.node.attributes["deviations"] == [
        {"expectation": "all", "severity": "warning", "condition": "has gpu", "found": "no gpu"}
    ]
    assert [reason for reason, _ in steps(service)] == [Reason.HARDWARE_DEVIATES]
    expect(service, "has nic")
    inspect(service)
    assert "deviations" not in service.node.attributes
    assert [reason for reason, _ in steps(service)][-1] is None


def test_a_deviation_may_fail_the_inspection_and_is_still_on_the_node(service: Service) -> None:
    expect(service, "has gpu", severity="failure")
    inspect(service)
    assert service.node.state is State.ERROR
    assert service.store.read(lambda tx: tx.inspections.get(service.node.inspection or "")).reason == (
        Reason.HARDWARE_DEVIATES
    )
    assert [one["condition"] for one in service.node.attributes["deviations"]] == ["has gpu"]
    expect(service)
    inspect(service)
    assert service.node.state is State.FINISHED
    assert "deviations" not in service.node.attributes
