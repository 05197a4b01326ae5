"""``If-Lease``: calls of a leader, which change nothing once it does not lead any more; on both APIs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ferroscope.contracts.errors import StaleLeaseError
from ferroscope.contracts.store import CallContext
from ferroscope.db import Transaction
from tests.api.service import Client, Service, fault, message

NAME = "site/controller"
NODE = {"name": "m1", "driver": "fake-hardware"}


def _acquire(client: Client, name: str = NAME, holder: str = "me") -> Any:
    answer = client.post(f"/v1/leases/{name}", {"holder": holder, "duration": 60})
    assert answer.status_code == 201, answer.text
    return answer.json


def _header(lease: Any, **other: Any) -> dict[str, str]:
    values = lease | other
    return {"If-Lease": f"{values['name']}/{values['epoch']}/{values['token']}"}


def _names(client: Client) -> list[str]:
    return [node["name"] for node in client.get("/v1/nodes").json["nodes"]]


def test_the_leader_changes_things_and_nobody_else_does(everywhere: Service) -> None:
    client = everywhere.bare_metal
    lease = _acquire(client)
    assert client.post("/v1/nodes", NODE, headers=_header(lease)).status_code == 201
    for wrong in (_header(lease, epoch=2), _header(lease, token="x"), _header(lease, name="nobody/knows")):
        answer = client.post("/v1/nodes", NODE | {"name": "m2"}, headers=wrong)
        assert answer.status_code == 412, answer.text
        assert lease["token"] not in answer.text
    assert _names(client) == ["m1"]
    # A new leader: all that the former one still sends is refused, also what would change nothing or a lease.
    assert client.delete(f"/v1/leases/{NAME}?epoch={lease['epoch']}&token={lease['token']}").status_code == 204
    assert client.delete("/v1/nodes/m1", headers=_header(lease)).status_code == 412
    successor = _acquire(client, holder="other")
    refused = client.delete("/v1/nodes/m1", headers=_header(lease))
    assert refused.status_code == 412
    assert f"other in epoch {successor['epoch']}" in fault(refused)
    body = {"holder": "me", "duration": 60}
    assert client.post("/v1/leases/site/other", body, headers=_header(lease)).status_code == 412
    assert client.delete("/v1/nodes/m1", headers=_header(successor)).status_code == 204


def test_the_introspection_api_asks_for_it_too(service: Service) -> None:
    ident = service.enrol(name="m1")
    lease = _acquire(service.bare_metal)
    path = f"/v1/introspection/{ident}"
    refused = service.introspection.post(path, headers=_header(lease, epoch=7))
    assert refused.status_code == 412
    assert f"me in epoch {lease['epoch']}" in message(refused)
    assert service.pending(ident) == []
    assert service.introspection.post(path, headers=_header(lease)).status_code == 202
    assert len(service.pending(ident)) == 1


def test_a_takeover_between_the_request_and_its_transaction_is_noticed_in_the_transaction(everywhere: Service) -> None:
    store = everywhere.store
    lease = store.write(lambda tx: tx.leases.acquire(NAME, "me", 60.0))

    def change(tx: Transaction) -> None:
        tx.leases.acquire("site/changed", "me", 60.0)

    def take_over(tx: Transaction) -> None:
        tx.leases.release(lease)
        tx.leases.acquire(NAME, "other", 60.0)

    bound = store.on_behalf_of(CallContext(lease=lease))
    bound.write(lambda _tx: None)  # it still leads
    successor = threading.Thread(target=lambda: store.write(take_over))
    successor.start()
    successor.join()
    with pytest.raises(StaleLeaseError):
        bound.write(change)
    assert store.read(lambda tx: tx.leases.list("site/changed")) == []


def test_an_invalid_header_is_rejected(service: Service) -> None:
    for given in ("x", "a/b", "a/0/x", "a/1/", "a/-1/x", "a/1/x y", f"{'n' * 201}/1/x", "a/1/" + "t" * 65):
        assert service.bare_metal.post("/v1/nodes", NODE, headers={"If-Lease": given}).status_code == 400, given
    assert _names(service.bare_metal) == []


def test_reads_do_not_take_it(service: Service) -> None:
    lease = _acquire(service.bare_metal)
    assert service.bare_metal.get("/v1/nodes", headers=_header(lease)).status_code == 400


def test_the_audit_has_the_call_of_a_leader_once_and_none_of_a_former_one(service: Service) -> None:
    lease = _acquire(service.bare_metal)
    before = len(service.bare_metal.get("/v1/audit").json["events"])
    assert service.bare_metal.post("/v1/nodes", NODE, headers=_header(lease, epoch=9)).status_code == 412
    assert len(service.bare_metal.get("/v1/audit").json["events"]) == before
    assert service.bare_metal.post("/v1/nodes", NODE, headers=_header(lease)).status_code == 201
    assert service.bare_metal.post("/v1/nodes", NODE, headers=_header(lease)).status_code == 409
    assert len(service.bare_metal.get("/v1/audit").json["events"]) == before + 1
