"""Callers of a project: what lists show them, page by page, which fields they see, and what they may change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.api.auth.identity import local
from tests.api.callers import As, service_for
from tests.api.service import Service
from tests.support import databases, examples

IDENTITIES = {
    "root": local("root", "token", ["admin"]),
    "reader": local("reader", "token", ["reader"]),
    **{
        f"{who}-{role}": local(who, "token", [role], project=f"p_{who}")
        for who in "abc"
        for role in ("reader", "admin")
    },
}
# A project whose nodes would be shown to p_a if the name were a pattern, or the text were found anywhere.
DECOYS: list[dict[str, Any]] = [
    {"owner": "pxa"},
    {"lessee": "pxa"},
    {"extra": {"lessee": "p_a"}},
    {"extra": {"x": '"lessee":"p_a"'}},
    {"owner": "p_b"},
    {},
]


@pytest.fixture
def service(tmp_path: Any) -> Service:
    return service_for(databases.sqlite(tmp_path), IDENTITIES)


def enroll(service: Service, **fields: Any) -> str:
    answer = As(service.bare_metal, "root")("POST", "/v1/nodes", {"driver": "fake-hardware", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json["uuid"])


def pages(client: As, path: str, key: str) -> list[str]:
    """Return the UUIDs of all pages of two."""
    found: list[str] = []
    asked = f"{path}{'&' if '?' in path else '?'}limit=2"
    while asked:
        answer = client("GET", asked)
        assert answer.status_code == 200, answer.text
        assert len(answer.json[key]) <= 2
        found += [one["uuid"] for one in answer.json[key]]
        asked = answer.json.get("next", "").partition("/v1")[2]
        asked = asked and f"/v1{asked}"
    return found


def mixed(service: Service) -> tuple[list[str], list[str]]:
    """Return the nodes of project a, as owner and as lessee, and all nodes, mixed with those of others."""
    own: list[str] = []
    every: list[str] = []
    for number in range(3):
        every += [enroll(service, **fields) for fields in DECOYS]
        own.append(enroll(service, **({"owner": "p_a"} if number % 2 else {"lessee": "p_a", "owner": "p_b"})))
    return own, [*every, *own]


def test_lists_have_the_caller_s_nodes_only_and_all_of_them(service: Service) -> None:
    own, every = mixed(service)
    for path in ("/v1/nodes", "/v1/nodes/detail", "/v1/nodes?sort_key=owner", "/v1/nodes?sort_dir=desc"):
        assert sorted(pages(As(service.bare_metal, "a-reader"), path, "nodes")) == sorted(own), path
    assert sorted(pages(As(service.bare_metal, "reader"), "/v1/nodes", "nodes")) == sorted(every)
    assert pages(As(service.bare_metal, "c-admin"), "/v1/nodes", "nodes") == []
    assert pages(As(service.bare_metal, "a-reader"), "/v1/nodes?owner=p_b", "nodes") == [own[0], own[2]]
    assert pages(As(service.bare_metal, "a-reader"), "/v1/nodes?project=p_c", "nodes") == []


def test_search_and_ports_show_the_same_nodes(service: Service) -> None:
    own, every = mixed(service)
    root = As(service.bare_metal, "root")
    ports = {}
    for node in every:
        answer = root("POST", "/v1/ports", {"node_uuid": node, "address": examples.mac()})
        ports[node] = answer.json["uuid"]
    client = As(service.bare_metal, "a-reader")
    # A lessee may not see inventories, so the hits of a search must not reveal them either.
    assert pages(client, "/v1/search?q=driver=fake-hardware", "nodes") == [own[1]]
    assert len(pages(As(service.bare_metal, "reader"), "/v1/search?q=driver=fake-hardware", "nodes")) == len(every)
    assert sorted(pages(client, "/v1/ports", "ports")) == sorted(ports[node] for node in own)
    assert len(pages(As(service.bare_metal, "reader"), "/v1/ports", "ports")) == len(every)
    foreign = next(node for node in every if node not in own)
    for path in (f"/v1/ports?node={foreign}", f"/v1/nodes/{foreign}/ports", f"/v1/nodes?marker={foreign}"):
        assert client("GET", path).status_code == 404, path
    assert client("GET", f"/v1/ports?marker={ports[foreign]}").status_code == 404
    assert client("GET", f"/v1/nodes/{own[1]}/inventory/diff?other={foreign}").status_code == 404


def test_what_is_hidden_is_answered_like_what_does_not_exist(service: Service) -> None:
    hidden, nowhere = enroll(service, name="one", owner="p_b"), "11111111-2222-4333-8444-555555555555"
    client = As(service.bare_metal, "a-admin")
    for path in ("/v1/nodes/{}", "/v1/nodes/{}/states", "/v1/nodes/{}/inventory", "/v1/introspection/{}"):
        answers = [client("GET", path.format(ident)) for ident in (hidden, nowhere)]
        assert {answer.status_code for answer in answers} == {404}
        assert answers[0].text.replace(hidden, "X") == answers[1].text.replace(nowhere, "X")
    by_name = [client("DELETE", f"/v1/nodes/{name}").text.replace(name, "X") for name in ("one", "two")]
    assert by_name[0] == by_name[1]


def test_introspections_of_the_caller_s_nodes(service: Service) -> None:
    own, foreign = enroll(service, owner="p_a"), enroll(service, owner="p_b")
    root = As(service.introspection, "root")
    for node in (own, foreign):
        assert root("POST", f"/v1/introspection/{node}").status_code == 202
    listed = As(service.introspection, "a-admin")("GET", "/v1/introspection").json["introspection"]
    assert [one["uuid"] for one in listed] == [own]
    assert len(root("GET", "/v1/introspection").json["introspection"]) == 2


def test_a_lessee_sees_the_node_and_its_ports_but_nothing_of_its_inventory_or_failures(service: Service) -> None:
    node = enroll(service, owner="p_a", lessee="p_b", properties={"cpus": 4}, name="leased")
    port = As(service.bare_metal, "root")("POST", "/v1/ports", {"node_uuid": node, "address": examples.mac()}).json
    service.learn(node, {"system_vendor": {"serial_number": "SN-90a7"}, "memory": {"physical_mb": 65536}})
    service.store.write(
        lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node), last_error="at SN-90a7"))
    )
    owner, lessee = As(service.bare_metal, "a-reader"), As(service.bare_metal, "b-reader")
    for path, seen in (
        (f"/v1/nodes/{node}", True),
        ("/v1/nodes?fields=hardware,last_error,uuid,name", True),
        (f"/v1/nodes/{node}?fields=hardware,name,uuid", True),
        ("/v1/nodes/detail", True),
        (f"/v1/nodes/{node}/states", True),
        (f"/v1/ports/{port['uuid']}", True),
        ("/v1/search?q=serial=SN-90a7", False),
        (f"/v1/nodes/{node}/inventory", False),
        (f"/v1/nodes/{node}/inventory/revisions", False),
        (f"/v1/nodes/{node}/history", False),
        (f"/v1/nodes/{node}/timeline", False),
        (f"/v1/introspection/{node}", False),
    ):
        answer = lessee("GET", path)
        assert "SN-90a7" not in answer.text.replace("serial=SN-90a7", ""), path
        assert (answer.status_code == 200 and "[]" not in answer.text[:20]) is seen, path
    assert "SN-90a7" in owner("GET", f"/v1/nodes/{node}/states").text
    assert owner("GET", f"/v1/nodes/{node}").json["hardware"]["serial"] == "SN-90a7"
    assert [one["uuid"] for one in owner("GET", "/v1/search?q=serial=SN-90a7").json["nodes"]] == [node]
    shown = lessee("GET", f"/v1/nodes/{node}").json
    assert shown["properties"] == {"cpus": 4}
    assert "baremetal:node:inventory:get" in shown["hardware"]["content"]


def test_an_admin_of_a_project_enrolls_and_deletes_nodes_of_that_project(service: Service) -> None:
    admin, other = As(service.bare_metal, "a-admin"), As(service.bare_metal, "b-admin")
    made = admin("POST", "/v1/nodes", {"driver": "fake-hardware"})
    assert (made.status_code, made.json["owner"]) == (201, "p_a")
    assert admin("POST", "/v1/nodes", {"driver": "fake-hardware", "owner": "p_b"}).status_code == 403
    assert As(service.bare_metal, "a-reader")("POST", "/v1/nodes", {"driver": "fake-hardware"}).status_code == 403
    uuid = made.json["uuid"]
    foreign = enroll(service, owner="p_b")
    body = {"driver": "fake-hardware", "parent_node": foreign}
    assert admin("POST", "/v1/nodes", body).status_code == 403
    assert other("DELETE", f"/v1/nodes/{uuid}").status_code == 404
    assert admin("DELETE", f"/v1/nodes/{uuid}").status_code == 204


def test_a_project_cannot_have_a_secret_of_the_service_sent_to_a_bmc_of_its_own(service: Service) -> None:
    admin, root = As(service.bare_metal, "a-admin"), As(service.bare_metal, "root")
    info = {"redfish_address": "https://192.0.2.66", "redfish_password": "secret://file/rack1"}
    for sent in (info, {"nested": {"deep": ["secret://file/rack1"]}}):
        refused = admin("POST", "/v1/nodes", {"driver": "fake-hardware", "driver_info": sent})
        assert (refused.status_code, "ferroscope:secret:reference" in refused.text) == (403, True)
    own = admin("POST", "/v1/nodes", {"driver": "fake-hardware"}).json["uuid"]
    add = [{"op": "add", "path": f"/driver_info/{name}", "value": value} for name, value in info.items()]
    assert admin("PATCH", f"/v1/nodes/{own}", add).status_code == 403
    assert root("PATCH", f"/v1/nodes/{own}", add).status_code == 200
    # With what the operator has set, other fields may be changed, but not where the secret is sent to.
    note = [{"op": "add", "path": "/driver_info/note", "value": "x"}]
    assert admin("PATCH", f"/v1/nodes/{own}", note).status_code == 200
    move = {"op": "add", "path": "/driver_info/redfish_address", "value": "https://192.0.2.67"}
    for operations, status in (([move], 400), ([move, add[1]], 403)):
        assert admin("PATCH", f"/v1/nodes/{own}", operations).status_code == status
    assert root("PATCH", f"/v1/nodes/{own}", [move, add[1]]).status_code == 200


def test_ports_are_made_and_moved_by_those_who_may_on_both_nodes(service: Service) -> None:
    own, leased, foreign = enroll(service, owner="p_a"), enroll(service, owner="p_b", lessee="p_a"), enroll(service)
    admin = As(service.bare_metal, "a-admin")
    made = admin("POST", "/v1/ports", {"node_uuid": own, "address": examples.mac()})
    assert made.status_code == 201
    assert admin("POST", "/v1/ports", {"node_uuid": leased, "address": examples.mac()}).status_code == 403
    assert admin("POST", "/v1/ports", {"node_uuid": foreign, "address": examples.mac()}).status_code == 404
    for node, status in ((leased, 403), (foreign, 400)):
        move = [{"op": "replace", "path": "/node_uuid", "value": node}]
        assert admin("PATCH", f"/v1/ports/{made.json['uuid']}", move).status_code == status


def test_names_of_leases_are_counted_for_each_caller(service: Service) -> None:
    for name, who in (("backup/a", "root"), ("backup/b", "reader")):
        body = {"holder": "h", "duration": 30}
        answer = As(service.bare_metal, who)("POST", f"/v1/leases/{name}", body)
        assert answer.status_code == (201 if who == "root" else 403)
    held = service.store.read(lambda tx: tx.leases.list("backup"))
    assert [lease.source for lease in held] == ["token:root"]
