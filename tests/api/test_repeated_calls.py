"""``Idempotency-Key``: a call that is repeated, because its answer was lost, has effect once."""

from __future__ import annotations

import pytest

from ferroscope.contracts.errors import OutcomeUnknownError
from ferroscope_client.core.states import State
from tests.api.service import Service
from tests.store.sql.test_lost_answers import Lossy

KEY = {"Idempotency-Key": "0d9f3c1e-1"}
INSPECT = {"target": "inspect"}


def provision(node: str) -> str:
    return f"/v1/nodes/{node}/states/provision"


def test_a_start_that_is_repeated_after_the_end_of_its_inspection_starts_nothing(service: Service) -> None:
    node = service.enrol()
    assert service.bare_metal.put(provision(node), INSPECT, headers=KEY).status_code == 202
    service.alter(node, state=State.FINISHED, provision_state="manageable")
    service.consume()
    answer = service.bare_metal.put(provision(node), INSPECT, headers=KEY)
    assert answer.status_code == 202
    assert service.node(node).state is State.FINISHED
    assert service.pending(node) == []
    assert service.bare_metal.put(provision(node), INSPECT).status_code == 202
    assert service.node(node).state is State.STARTING


def test_what_is_created_twice_with_a_key_is_created_once_and_answered_the_same(service: Service) -> None:
    body = {"driver": "fake-hardware", "name": "one"}
    first = service.bare_metal.post("/v1/nodes", body, headers=KEY)
    second = service.bare_metal.post("/v1/nodes", body, headers=KEY)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json == first.json


def test_a_key_belongs_to_one_request(service: Service) -> None:
    node = service.enrol()
    assert service.bare_metal.put(provision(node), INSPECT, headers=KEY).status_code == 202
    other = service.bare_metal.put(provision(node), {"target": "abort"}, headers=KEY)
    assert other.status_code == 409
    assert "Idempotency-Key" in other.text


@pytest.mark.parametrize("key", ["", "x" * 256, "\u00e4"])
def test_a_key_that_is_none_is_refused(service: Service, key: str) -> None:
    node = service.enrol()
    answer = service.bare_metal.put(provision(node), INSPECT, headers={"Idempotency-Key": key})
    assert answer.status_code == 400


def test_a_call_that_failed_may_be_repeated_with_its_key(service: Service) -> None:
    node = service.enrol()
    service.alter(node, provision_state="available", maintenance=False)
    refused = service.bare_metal.put(provision(node), {"target": "adopt"}, headers=KEY)
    assert refused.status_code >= 400
    again = service.bare_metal.put(provision(node), {"target": "adopt"}, headers=KEY)
    assert again.status_code == refused.status_code


def test_a_call_that_was_not_committed_changes_nothing_and_may_be_repeated(service: Service) -> None:
    node = service.enrol()
    lossy = Lossy(service)  # type: ignore[arg-type]
    lossy.only_changes, lossy.times, lossy.arrives = True, 1, False
    assert service.bare_metal.put(provision(node), INSPECT, headers=KEY).status_code == 503
    assert service.pending(node) == []
    assert service.bare_metal.put(provision(node), INSPECT, headers=KEY).status_code == 202
    assert service.node(node).state is State.STARTING


def test_a_change_of_which_the_database_did_not_answer_is_answered_as_done(everywhere: Service) -> None:
    node = everywhere.enrol()
    lossy = Lossy(everywhere)  # type: ignore[arg-type]
    lossy.only_changes, lossy.times = True, 1
    assert everywhere.bare_metal.put(provision(node), INSPECT).status_code == 202
    assert lossy.times == 0
    assert len(everywhere.pending(node)) == 1


def test_an_outcome_that_nobody_knows_is_not_called_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    node = service.enrol()

    def lost(*_given: object, **_more: object) -> None:
        raise OutcomeUnknownError("the server closed the connection")

    monkeypatch.setattr(service.store, "write", lost)
    answer = service.bare_metal.put(provision(node), INSPECT)
    assert answer.status_code == 504
    assert "Retry-After" not in answer.headers
    ramdisk = service.bare_metal.post("/v1/continue_inspection", {"inventory": {"interfaces": []}})
    assert ramdisk.status_code in (400, 404, 503)


def test_a_large_answer_is_not_kept_beside_the_quota_and_its_call_is_not_repeated(service: Service) -> None:
    node = service.enrol(extra={"large": "x" * 200_000})
    change = {"op": "add", "path": "/extra/number", "value": 1}
    assert service.bare_metal.patch(f"/v1/nodes/{node}", change, headers=KEY).status_code == 200
    service.bare_metal.patch(f"/v1/nodes/{node}", change | {"value": 2})
    answer = service.bare_metal.patch(f"/v1/nodes/{node}", change, headers=KEY)
    assert (answer.status_code, "has taken effect before" in answer.text) == (409, True)
    assert service.node(node).extra["number"] == 2
