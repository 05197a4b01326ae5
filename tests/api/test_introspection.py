"""The Introspection API: a second view of the same nodes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from ferroscope.core.states import Event
from tests.api.service import Client, Service, message
from tests.support import examples


def test_start_status_and_end(service: Service) -> None:
    ident = service.enrol(name="n")
    unknown = service.introspection.get(f"/v1/introspection/{ident}")
    assert unknown.status_code == 404
    started = service.introspection.post("/v1/introspection/n")
    assert (started.status_code, started.json) == (202, {})
    status = service.introspection.get("/v1/introspection/n").json
    assert set(status) == {"uuid", "finished", "state", "started_at", "finished_at", "error", "links"}
    assert (status["uuid"], status["finished"], status["state"], status["error"]) == (ident, False, "starting", None)
    assert status["finished_at"] is None
    assert status["links"][0]["href"].endswith(f":5050/v1/introspection/{ident}")
    service.consume()
    service.step(ident, Event.WAIT)
    service.fail(ident)
    failed = service.introspection.get(f"/v1/introspection/{ident}").json
    assert (failed["finished"], failed["state"]) == (True, "error")
    assert "nothing was heard" in failed["error"]
    assert failed["finished_at"].endswith("+00:00")


def test_start_of_an_available_node_is_409(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "provide"})
    answer = service.introspection.post(f"/v1/introspection/{ident}")
    assert answer.status_code == 409
    assert "manageable" in message(answer)


@pytest.mark.parametrize(("query", "managed"), [("", True), ("?manage_boot=0", False), ("?manage_boot=True", True)])
def test_manage_boot(service: Service, query: str, managed: bool) -> None:
    ident = service.enrol()
    assert service.introspection.post(f"/v1/introspection/{ident}{query}").status_code == 202
    inspection = service.node(ident).inspection
    assert service.store.read(lambda tx: tx.inspections.get(inspection or "")).manage_boot is managed


def test_bad_manage_boot_is_400(service: Service) -> None:
    ident = service.enrol()
    answer = service.introspection.post(f"/v1/introspection/{ident}?manage_boot=perhaps")
    assert answer.status_code == 400
    assert "manage_boot" in message(answer)


def test_unknown_node_is_404(introspection: Client) -> None:
    reads = [("GET", path) for path in ("", "/data", "/data/unprocessed")]
    for method, path in [*reads, *(("POST", path) for path in ("", "/abort", "/data/unprocessed"))]:
        answer = introspection.call(method, f"/v1/introspection/nobody{path}")
        assert (answer.status_code, "nobody" in message(answer)) == (404, True), (method, path)


def test_list_is_newest_first_with_pages_and_states(service: Service) -> None:
    idents = [service.enrol() for _ in range(4)]
    service.enrol(name="never-introspected")
    for ident in idents:
        service.introspection.post(f"/v1/introspection/{ident}")
    service.consume()
    service.step(idents[0], Event.WAIT)
    listed = service.introspection.get("/v1/introspection").json["introspection"]
    assert [item["uuid"] for item in listed] == idents[::-1]
    first = service.introspection.get("/v1/introspection?limit=3").json["introspection"]
    rest = service.introspection.get(f"/v1/introspection?limit=3&marker={first[-1]['uuid']}").json["introspection"]
    assert first + rest == listed
    only = service.introspection.get("/v1/introspection?state=waiting,error").json["introspection"]
    assert [item["uuid"] for item in only] == [idents[0]]
    assert len(service.introspection.get("/v1/introspection?limit=0").json["introspection"]) == 4


def test_bad_queries(introspection: Client) -> None:
    for query, status in [
        ("limit=-1", 400),
        ("state=bored", 400),
        (f"marker={uuid.UUID(int=5)}", 404),
    ]:
        answer = introspection.get(f"/v1/introspection?{query}")
        assert answer.status_code == status, query
        assert message(answer), query


def test_abort(service: Service) -> None:
    ident = service.enrol(name="n")
    service.wait(ident)
    answer = service.introspection.post("/v1/introspection/n/abort")
    assert (answer.status_code, answer.json) == (202, {})
    assert [request.event for request in service.pending(ident)] == [Event.ABORT]


def test_abort_of_a_finished_inspection_is_409_and_leaves_it_alone(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    answer = service.introspection.post(f"/v1/introspection/{ident}/abort")
    assert answer.status_code == 409
    assert "finished" in message(answer)
    assert "inspect" in message(answer)
    assert service.pending(ident) == []


def test_data_is_processed_and_unprocessed(service: Service) -> None:
    ident = service.enrol(name="n")
    body = service.inspect(ident)
    processed = service.introspection.get("/v1/introspection/n/data").json
    assert processed["inventory"] == body["inventory"]
    assert processed["valid_interfaces"] == {}
    assert service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json == body


def test_data_of_a_node_without_any_is_404(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    for path in ("data", "data/unprocessed"):
        assert service.introspection.get(f"/v1/introspection/{ident}/{path}").status_code == 404


def test_reapply_processes_the_stored_data_again_once(service: Service) -> None:
    ident = service.enrol()
    body = service.inspect(ident)
    for _ in range(3):
        answer = service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed")
        assert (answer.status_code, answer.json) == (202, {})
    assert [request.event for request in service.pending(ident)] == [Event.REAPPLY]
    assert service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json == body


def test_reapply_of_given_data_stores_it(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    given: dict[str, Any] = {
        "inventory": {"interfaces": [{"mac_address": examples.mac()}]},
        "root_disk": {"name": "/dev/sda"},
    }
    assert service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed", given).status_code == 202
    assert service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json == given


def test_reapply_after_a_failed_inspection_takes_the_data_of_the_one_before(service: Service) -> None:
    ident = service.enrol()
    body = service.inspect(ident)
    service.wait(ident)
    service.fail(ident)
    assert service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed").status_code == 202
    inspection = service.node(ident).inspection
    stored = service.store.read(lambda tx: tx.data.load(inspection or "", ("inventory", "unprocessed")))
    assert len(stored) == 2
    assert service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json == body


def test_reapply_while_inspecting_is_409(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    service.wait(ident)
    answer = service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed")
    assert answer.status_code == 409
    assert "waiting" in message(answer)


@pytest.mark.parametrize(
    "body",
    ["[]", "{", '{"a": 1}', '{"inventory": {"a": "\\u0000"}}', '{"inventory": []}', '{"inventory": {"interfaces": 5}}'],
)
def test_bad_reapply_bodies_are_400_and_leave_the_stored_data_alone(service: Service, body: str) -> None:
    ident = service.enrol()
    stored = service.inspect(ident)
    answer = service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed", body)
    assert answer.status_code == 400
    assert message(answer)
    assert service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json == stored
    assert service.pending(ident) == []


def test_both_apis_show_one_state(service: Service) -> None:
    ident = service.enrol()
    service.introspection.post(f"/v1/introspection/{ident}")
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["provision_state"] == "inspecting"
    node = service.bare_metal.get(f"/v1/nodes/{ident}").json
    status = service.bare_metal.get(f"/v1/introspection/{ident}").json
    assert node["inspection_started_at"] == status["started_at"].partition(".")[0] + "+00:00"
