"""What an inspection left behind: inventory, history, timeline."""

from __future__ import annotations

import uuid

from ferroscope.core.model import Entry
from ferroscope_client.core.explanations import EXPLANATIONS
from ferroscope_client.core.reasons import Reason
from tests.api.service import Service, callback_body, fault


def test_inventory_is_what_came_and_what_hooks_made(service: Service) -> None:
    ident = service.enrol(name="n")
    body = service.inspect(ident)
    answer = service.bare_metal.get("/v1/nodes/n/inventory")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json == {"inventory": body["inventory"], "plugin_data": {"valid_interfaces": {}}}


def test_inventory_of_a_node_that_was_never_inspected_is_404(service: Service) -> None:
    ident = service.enrol()
    answer = service.bare_metal.get(f"/v1/nodes/{ident}/inventory")
    assert answer.status_code == 404
    assert ident in fault(answer)


def test_inventory_stays_until_there_is_a_newer_one(service: Service) -> None:
    ident = service.enrol()
    first = service.inspect(ident, serial="1")
    path = f"/v1/nodes/{ident}/inventory"
    mac = service.wait(ident)
    assert service.bare_metal.get(path).json["inventory"] == first["inventory"]
    second = callback_body(mac, serial="2")
    service.bare_metal.post("/v1/continue_inspection", second, version="1.1")
    assert service.bare_metal.get(path).json["inventory"] == first["inventory"]
    service.finish(ident)
    assert service.bare_metal.get(path).json["inventory"] == second["inventory"]
    for _ in range(25):
        service.wait(ident)
        service.fail(ident)
    assert service.bare_metal.get(path).json["inventory"] == second["inventory"]


def test_history_is_the_journal_in_the_references_words(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    events = service.bare_metal.get(f"/v1/nodes/{ident}/history").json["history"]
    assert [event["event"] for event in events] == [
        "inspection requested",
        "callback received",
        "continue requested",
    ]
    assert set(events[0]) == {"uuid", "created_at", "severity", "event", "links"}
    detail = service.bare_metal.get(f"/v1/nodes/{ident}/history?detail=True").json["history"][0]
    assert (detail["event_type"], detail["conductor"], detail["user"]) == ("requested", "api-test", None)
    one = service.bare_metal.get(f"/v1/nodes/{ident}/history/{events[0]['uuid']}").json
    assert one == detail
    page = service.bare_metal.get(f"/v1/nodes/{ident}/history?limit=2").json
    rest = service.bare_metal.get(page["next"][page["next"].index("/v1/") :]).json
    assert page["history"] + rest["history"] == events
    assert service.bare_metal.get(f"/v1/nodes/{ident}/history?sort_dir=desc").json["history"][0] == events[-1]


def test_events_of_other_nodes_are_not_found(service: Service) -> None:
    ident, other = service.enrol(), service.enrol()
    service.inspect(ident)
    event = service.bare_metal.get(f"/v1/nodes/{ident}/history").json["history"][0]["uuid"]
    assert service.bare_metal.get(f"/v1/nodes/{other}/history/{event}").status_code == 404
    assert service.bare_metal.get(f"/v1/nodes/{ident}/history/{uuid.uuid4()}").status_code == 404
    assert service.bare_metal.get(f"/v1/nodes/{ident}/history/x").status_code == 400


def test_a_page_of_the_timeline_has_the_newest_steps_that_belong_to_none(service: Service) -> None:
    ident = service.enrol()
    steps = [Entry(node=ident, inspection=None, step="s", message=str(n), process="p") for n in range(1005)]
    service.store.write(lambda tx: tx.journal.append(steps))
    service.inspect(ident)
    timeline = service.bare_metal.get(f"/v1/nodes/{ident}/timeline").json
    assert [entry["message"] for entry in timeline["entries"]] == [str(n) for n in range(5, 1005)]
    assert len(timeline["inspections"]) == 1
    assert timeline["inspections"][0]["entries"]


def test_timeline_groups_steps_by_inspection_newest_first(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    service.wait(ident)
    service.fail(ident)
    timeline = service.bare_metal.get(f"/v1/nodes/{ident}/timeline").json
    assert timeline["provision_state"] == "inspect failed"
    failed, finished = timeline["inspections"]
    assert (failed["state"], failed["reason"], failed["error"]) == ("error", "timeout", "nothing was heard")
    assert failed["hint"] == EXPLANATIONS[Reason.TIMEOUT].hint
    assert (finished["state"], finished["reason"]) == ("finished", None)
    assert [entry["step"] for entry in finished["entries"]] == ["requested", "callback", "requested"]
    assert finished["finished_at"] >= finished["started_at"]
    page = service.bare_metal.get(f"/v1/nodes/{ident}/timeline?limit=1").json
    assert [item["uuid"] for item in page["inspections"]] == [failed["uuid"]]
    rest = service.bare_metal.get(page["next"][page["next"].index("/v1/") :]).json
    assert [item["uuid"] for item in rest["inspections"]] == [finished["uuid"]]
    assert "next" not in rest
    listed = service.bare_metal.get(f"/v1/nodes/{ident}/inspections").json["inspections"]
    assert [item["uuid"] for item in listed] == [failed["uuid"], finished["uuid"]]
    assert "entries" not in listed[0]
