"""What third parties' tests of ironic-inspector expect of the Introspection API.

The facts are those of ironic-inspector 12.5.0: of its functional suite (``ironic_inspector/test/functional.py``), of
the module that each test names, and of a standalone server that was asked the same. Where we differ on purpose, see
docs/reference/deviations.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ferroscope.contracts.store import Query
from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import CANCELED, Reason
from tests.api.service import Service, callback_body, message


def restart(service: Service, ident: str) -> Any:
    return service.introspection.post(f"/v1/introspection/{ident}")


def test_a_start_while_waiting_starts_again(service: Service) -> None:
    """``introspection_state.py``: waiting, start, starting; POST is 202 (``test_edge_state_transitions``)."""
    ident = service.enrol()
    service.wait(ident)
    before, first = service.node(ident), service.introspection.get(f"/v1/introspection/{ident}").json
    answer = restart(service, ident)
    assert (answer.status_code, answer.text) == (202, "{}\n")
    status = service.introspection.get(f"/v1/introspection/{ident}").json
    assert (status["state"], status["finished"], status["error"]) == ("starting", False, None)
    assert status["started_at"] > first["started_at"]
    assert [request.event for request in service.pending(ident)] == [Event.INSPECT]
    old = service.store.read(lambda tx: tx.inspections.get(before.inspection or ""))
    assert (old.state, old.reason) == ("error", "restarted")


def test_starts_while_waiting_at_the_same_time_are_one(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    for _ in range(3):
        assert restart(service, ident).status_code == 202
    assert len(service.pending(ident)) == 1


def test_a_start_after_an_abort_that_has_not_taken_effect_starts_again(service: Service) -> None:
    """``test_edge_state_transitions``: abort, then introspect at once: waiting again, not finished."""
    ident = service.enrol()
    service.wait(ident)
    assert service.introspection.post(f"/v1/introspection/{ident}/abort").status_code == 202
    assert restart(service, ident).status_code == 202
    assert service.introspection.get(f"/v1/introspection/{ident}").json["finished"] is False


def test_a_start_is_refused_when_the_data_has_arrived(service: Service) -> None:
    """``introspection_state.py``: no start in processing. There 400, here 409."""
    ident = service.enrol()
    mac = service.wait(ident)
    assert service.introspection.post("/v1/continue", callback_body(mac)).status_code == 202
    answer = restart(service, ident)
    assert answer.status_code == 409
    assert "called back" in message(answer)


def test_a_callback_before_the_restarted_machine_is_powered_on_is_identified(service: Service) -> None:
    ident = service.enrol()
    mac = service.wait(ident)
    assert restart(service, ident).status_code == 202
    assert service.introspection.post("/v1/continue", callback_body(mac)).status_code == 202
    query = Query(filters={"node": ident}, sort_key="id")
    (entry,) = (one for one in service.store.read(lambda tx: tx.journal.list(query)) if one.step == "callback")
    assert "of an earlier boot" in entry.message


def test_a_callback_after_an_abort_is_400(service: Service) -> None:
    """``process.py``: every failed lookup is 400 (``test_abort_introspection``); here it was 404."""
    ident = service.enrol()
    mac = service.wait(ident)
    service.consume()
    service.step(ident, Event.ABORT, Fail(Reason.ABORTED, CANCELED))
    assert service.introspection.post("/v1/continue", callback_body(mac)).status_code == 400
    assert service.bare_metal.post("/v1/continue_inspection", callback_body(mac), version="1.1").status_code == 404


def test_an_aborted_introspection_is_canceled_by_operator(service: Service) -> None:
    """``introspect.py``: the error is this text and nothing else (``test_abort_introspection``)."""
    ident = service.enrol()
    service.wait(ident)
    service.consume()
    service.step(ident, Event.ABORT, Fail(Reason.ABORTED, CANCELED))
    status = service.introspection.get(f"/v1/introspection/{ident}").json
    assert (status["state"], status["finished"], status["error"]) == ("error", True, "Canceled by operator")
    assert "(aborted)" in service.bare_metal.get(f"/v1/nodes/{ident}").json["last_error"]


def test_times_have_microseconds(service: Service) -> None:
    """``main.py``: ``isoformat`` of the column, so that a finish within the second is later than its start."""
    ident = service.enrol()
    service.inspect(ident)
    status = service.introspection.get(f"/v1/introspection/{ident}").json
    times = [datetime.fromisoformat(status[name]) for name in ("started_at", "finished_at")]
    assert times[0] < times[1]
    assert all(len(status[name].partition(".")[2]) == len("123456+00:00") for name in ("started_at", "finished_at"))


def test_a_reapply_renews_started_at(service: Service) -> None:
    """``process.py``: ``started_at`` is now (``test_stored_data_processing``)."""
    ident = service.enrol()
    service.inspect(ident)
    before = service.introspection.get(f"/v1/introspection/{ident}").json
    answer = service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed")
    assert (answer.status_code, answer.text) == (202, "{}\n")
    after = service.introspection.get(f"/v1/introspection/{ident}").json
    assert after["started_at"] > before["finished_at"] > before["started_at"]


def test_the_links_of_rules_have_no_host(service: Service) -> None:
    """``main.py``: ``url_for`` (``test_rules_api`` appends the link to the address of the service)."""
    rule = {"conditions": [], "actions": [{"action": "fail", "message": "boom"}], "scope": "sniper's scope"}
    created = service.introspection.post("/v1/rules", rule).json
    link = f"/v1/rules/{created['uuid']}"
    assert created["links"] == [{"href": link, "rel": "self"}]
    assert service.introspection.get(link).json == created
    assert service.introspection.get("/v1/rules").json["rules"][0]["links"] == created["links"]
    introspection = service.enrol()
    service.introspection.post(f"/v1/introspection/{introspection}")
    status = service.introspection.get(f"/v1/introspection/{introspection}").json
    assert status["links"][0]["href"].startswith("http")


def test_the_data_has_the_keys_of_the_default_hooks(service: Service) -> None:
    """``plugins/standard.py``: what the hooks ``scheduler``, ``root_disk_selection``, ``validate_interfaces`` add."""
    ident = service.enrol()
    mac = service.wait(ident)
    machine = {
        "cpu": {"count": 4, "architecture": "x86_64"},
        "memory": {"physical_mb": 12288},
        "bmc_address": "192.0.2.7",
    }
    assert service.introspection.post("/v1/continue", callback_body(mac, **machine)).status_code == 202
    service.finish(ident, {"root_disk": {"name": "/dev/sda", "size": 1000 << 30}})
    expected = {"cpus": 4, "cpu_arch": "x86_64", "memory_mb": 12288, "local_gb": 999, "ipmi_address": "192.0.2.7"}
    assert service.introspection.get(f"/v1/introspection/{ident}/data").json.items() >= expected.items()
    assert not expected.keys() & service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json.keys()
