"""Audit events: each change and each refused call has one, in the transaction of the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferroscope.api.auth.identity import Identity, local
from ferroscope.api.http import audit as http_audit
from ferroscope.api.http.audit import IDENTITY, Audit
from ferroscope.config.options import AuditSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.audit import AuditEvent
from ferroscope.db import Store, Transaction
from ferroscope.db.requests import AuditLog
from ferroscope.runtime.system import SystemClock
from tests.api.callers import As, service_for
from tests.api.service import Service, callback_body
from tests.support.manual_clock import ManualClock

SOURCE = "192.0.2.7"
ALICE = local("alice", "http_basic", ["admin"], project="infra")


def events(service: Service, query: str = "") -> list[dict[str, Any]]:
    answer = service.bare_metal.get(f"/v1/audit{query}")
    assert answer.status_code == 200, answer.text
    return list(answer.json["events"])


def by(who: Identity) -> dict[str, Any]:
    return {"extras": {IDENTITY: who}, "remote_addr": SOURCE}


def test_a_change_has_an_event_with_who_from_where_what_and_on_which_node(service: Service) -> None:
    uuid = service.enrol(name="rack1")
    patch = [{"op": "add", "path": "/extra/a", "value": 1}]
    answer = service.bare_metal.call("PATCH", "/v1/nodes/rack1", patch, **by(ALICE))
    assert answer.status_code == 200
    changed, created = events(service)
    assert changed["id"] > created["id"]
    assert changed["at"] is not None
    expected = {
        "user": "alice", "method": "http_basic", "project": "infra", "source": SOURCE, "policy":
        "baremetal:node:update", "call": "PATCH /v1/nodes/{node}", "target": "rack1", "node": uuid, "status": 200,
        "request_id": answer.headers["openstack-request-id"],
    }  # fmt: skip
    assert changed == changed | expected
    assert (created["user"], created["node"], created["status"]) == ("anonymous", uuid, 201)
    assert service.bare_metal.call("DELETE", "/v1/nodes/rack1", **by(ALICE)).status_code == 204
    deleted, *_ = events(service, f"?node={uuid}&user=alice")
    assert (deleted["call"], deleted["node"], deleted["target"]) == ("DELETE /v1/nodes/{node}", uuid, "rack1")


def test_reading_machines_and_renewing_leases_have_no_events(service: Service) -> None:
    uuid = service.enrol()
    mac = service.wait(uuid)
    before = len(events(service))
    assert service.bare_metal.post("/v1/continue_inspection", callback_body(mac), version="1.1").status_code == 202
    assert service.bare_metal.get("/v1/nodes").status_code == 200
    assert service.bare_metal.patch(f"/v1/nodes/{uuid}", {"op": "nonsense"}).status_code == 400
    assert len(events(service)) == before
    lease = service.bare_metal.post("/v1/leases/x", {"holder": "h", "duration": 60}).json
    given = {"epoch": lease["epoch"], "token": lease["token"]}
    assert service.bare_metal.put("/v1/leases/x", given).status_code == 200
    found = events(service)
    assert [event["call"] for event in found[: len(found) - before]] == ["POST /v1/leases/{name}"]
    assert lease["token"] not in json.dumps(found)


def test_refused_calls_have_events_and_a_flood_of_them_is_bounded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_audit, "_BURST_EVENTS", 50)
    audit = Audit(AuditSettings(), service.store, SystemClock(), process="api")

    def written(*sources: str) -> int:
        before = len(events(service))
        for source in sources:
            audit.write_refusal(AuditEvent(request_id="r", user="unknown", method="none", source=source, status=401))
        return len(events(service)) - before

    assert written(*["192.0.2.1"] * 40) == 30
    assert written(*(f"192.0.2.{number}" for number in range(2, 200))) == 20
    before = len(events(service))
    headers = {"Origin": "http://evil.example"}
    answer = service.bare_metal.call("POST", "/v1/nodes", {"driver": "sim"}, headers=headers)
    assert answer.status_code == 403
    event, *others = events(service)
    assert (event["status"], event["user"], event["call"]) == (403, "unknown", "POST /v1/nodes")
    assert len(others) == before


def test_who_was_refused_is_known_and_bad_credentials_are_whose_they_claim_to_be(sqlite_url: str) -> None:
    reader = local("carol", "token", ["reader"])
    service = service_for(sqlite_url, {"carol": reader, "root": local("root", "token", ["admin"])})
    assert As(service.bare_metal, "carol")("POST", "/v1/nodes", {"driver": "sim"}).status_code == 403
    assert As(service.bare_metal, "mallory")("GET", "/v1/nodes").status_code == 401
    created = As(service.bare_metal, "root")("POST", "/v1/nodes", {"driver": "sim"}).json["uuid"]
    answer = As(service.bare_metal, "carol")("GET", "/v1/audit")
    found = [(one["status"], one["user"], one["call"], one["node"]) for one in answer.json["events"]]
    assert found == [
        (201, "root", "POST /v1/nodes", created),
        (401, "mallory", "GET /v1/nodes", None),
        (403, "carol", "POST /v1/nodes", None),
    ]
    assert As(service.bare_metal, "")("GET", "/v1/audit").status_code == 401


def test_a_change_that_is_not_committed_has_no_event_and_the_reverse(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise StoreUnavailableError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "_commit", fail)
        assert service.bare_metal.post("/v1/nodes", {"driver": "sim"}).status_code == 503
    assert events(service) == []
    with monkeypatch.context() as patched:
        patched.setattr(AuditLog, "record", fail)
        assert service.bare_metal.post("/v1/nodes", {"driver": "sim"}).status_code == 503
    assert service.bare_metal.get("/v1/nodes").json["nodes"] == []


def test_lists_are_paged_and_filtered(service: Service) -> None:
    uuids = [service.enrol() for _ in range(5)]
    first = service.bare_metal.get("/v1/audit?limit=2").json
    rest = service.bare_metal.get(f"/v1/audit?before={first['next']}").json
    assert [event["node"] for event in first["events"] + rest["events"]] == uuids[::-1]
    assert "next" not in rest
    assert len(events(service, "?since=3600")) == 5
    assert events(service, "?since=0") == []
    assert events(service, "?user=bob") == []
    assert service.bare_metal.get("/v1/audit?node=absent").status_code == 404


def test_the_timeline_says_who(service: Service) -> None:
    uuid = service.enrol()
    service.bare_metal.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"}, **by(ALICE))
    service.bare_metal.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"}, **by(ALICE))
    timeline = service.bare_metal.get(f"/v1/nodes/{uuid}/timeline").json
    steps = [*timeline["entries"], *(step for one in timeline["inspections"] for step in one["entries"])]
    assert steps
    assert {step["process"] for step in steps} == {"alice via api-test"}


def test_events_are_written_as_lines_of_cadf(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    service = Service(sqlite_url, sections={"audit": AuditSettings(log_file=str(file))})
    uuid = service.enrol(name="rack1", driver_info={"bmc_password": "Canary-1"})
    file.rename(tmp_path / "audit.log.1")
    service.bare_metal.call("DELETE", "/v1/nodes/rack1", **by(ALICE))
    service.close()
    assert not file.stat().st_mode & 0o077
    (line,) = file.read_text().splitlines()
    event = json.loads(line)
    assert {"typeURI", "eventType", "id", "eventTime", "action", "outcome", "initiator", "target", "observer"} <= set(
        event
    )
    assert (event["eventType"], event["outcome"], event["reason"]["reasonCode"]) == ("activity", "success", "204")
    assert event["initiator"]["name"] == "alice"
    assert event["initiator"]["host"] == {"address": SOURCE}
    assert event["target"]["id"] == uuid
    assert "Canary" not in (tmp_path / "audit.log.1").read_text()


def test_a_log_file_that_cannot_be_written_stops_nothing(sqlite_url: str, tmp_path: Path) -> None:
    service = Service(sqlite_url, sections={"audit": AuditSettings(log_file=str(tmp_path / "absent" / "audit.log"))})
    service.enrol()
    assert len(events(service)) == 1


def test_it_can_be_turned_off(sqlite_url: str) -> None:
    service = Service(sqlite_url, sections={"audit": AuditSettings(enabled=False)})
    service.enrol()
    assert events(service) == []


def test_the_clock_of_a_host_does_not_date_events(service: Service) -> None:
    clock = ManualClock()  # of 1970: what is older than a year is removed
    Audit(AuditSettings(), service.store, clock, process="api").append(
        AuditEvent(request_id="r", user="u", method="none")
    )
    (found,), now = service.store.read(lambda tx: (tx.audit.list(limit=9), tx.now))
    assert now - 3600.0 < found.at <= now


def test_texts_are_cut_to_what_can_be_stored(everywhere: Service) -> None:
    event = AuditEvent(
        request_id="r" * 99, user="u" * 999, method="none", source="s" * 99, target="ü" * 999, status=403
    )
    everywhere.store.write(lambda tx: tx.audit.append(event))
    (found,) = everywhere.store.read(lambda tx: tx.audit.list(limit=9))
    assert (len(found.user), len(found.target), len(found.request_id)) == (255, 255, 64)


def test_old_events_are_removed(service: Service) -> None:
    for at in (1000.0, 2000.0, 3000.0):
        event = AuditEvent(request_id="r", user="u", method="none", at=at)
        service.store.write(lambda tx, event=event: tx.audit.append(event))  # type: ignore[misc]

    def remove(tx: Transaction) -> int:
        return tx.audit.remove_old(2500.0, 1)

    assert [service.store.write(remove) for _ in range(3)] == [1, 1, 0]
    assert [event.at for event in service.store.read(lambda tx: tx.audit.list(limit=9))] == [3000.0]
