"""Shards, children, firmware, what is out of scope, and paths without ``/v1``.

Source of each line: the Bare Metal API reference, and Ironic 39.0.0.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.service import Service
from tests.support import examples

UNKNOWN = "11111111-2222-4333-8444-555555555555"


def found(service: Service, query: str) -> list[str]:
    return [one["name"] for one in service.bare_metal.get(f"/v1/nodes?{query}&fields=name").json["nodes"]]


def test_shards_are_counted_and_filter_nodes(service: Service) -> None:
    """ "Shards (shards)": name and count; "List Nodes": ``shard`` and ``sharded`` since 1.82."""
    client = service.bare_metal
    assert client.get("/v1/shards").json == {"shards": []}
    for name, shard in (("n1", "s1"), ("n2", "s1"), ("n3", "s2"), ("n4", None)):
        service.enrol(name=name, shard=shard)
    service.enrol(name="n5", description='"shard": "s1"', network_data={"shard": "s3"})
    assert client.get("/v1/shards").json["shards"] == [
        {"name": "None", "count": 2},
        {"name": "s1", "count": 2},
        {"name": "s2", "count": 1},
    ]
    assert found(service, "shard=s1") == ["n1", "n2"]
    assert found(service, "shard=s1,s2") == ["n1", "n2", "n3"]
    assert found(service, "sharded=true") == ["n1", "n2", "n3"]
    assert found(service, "sharded=false") == ["n4", "n5"]
    patched = client.patch("/v1/nodes/n4", {"op": "add", "path": "/shard", "value": "s2"})
    assert patched.json["shard"] == "s2"
    client.patch("/v1/nodes/n1", {"op": "remove", "path": "/shard"})
    assert client.get("/v1/shards").json["shards"][1] == {"name": "s2", "count": 2}


def test_children_of_a_node(service: Service) -> None:
    """ "List children nodes": UUIDs and a link; since 1.83."""
    client, parent = service.bare_metal, service.enrol(name="parent")
    link = {"href": f"http://localhost:6385/v1/nodes?parent_node={parent}", "rel": "children"}
    assert client.get("/v1/nodes/parent/children").json == {"children": [], "links": link}
    child = service.enrol(name="child", parent_node="parent")
    assert client.get(f"/v1/nodes/{parent}/children").json == {"children": [child], "links": link}
    assert found(service, f"parent_node={parent}") == ["child"]
    assert found(service, "include_children=true") == ["parent", "child"]


def test_firmware_is_what_inspections_found(service: Service) -> None:
    """ "Firmware components (nodes)": component, initial_version, current_version, last_version_flashed, times."""
    node, client, mac = service.enrol(name="n"), service.client("1.96"), examples.mac()
    assert client.get("/v1/nodes/n/firmware").json == {"firmware": []}
    for version in ("1.0", "1.1", "2.0"):
        service.wait(node, mac=mac)
        body: dict[str, Any] = {
            "inventory": {
                "interfaces": [{"name": "eth0", "mac_address": mac}],
                "cpu": {"architecture": "x86_64", "count": 1},
                "memory": {"physical_mb": 1024},
                "system_vendor": {"firmware": {"vendor": "ACME", "version": version, "build_date": ""}},
            }
        }
        assert client.post("/v1/continue_inspection", body, version="1.1").status_code == 202
        nics = {"eth0": {"firmware": version, "product": "X710", "vendor": "Intel"}} if version > "1.1" else {}
        service.finish(node, {"extra": {"network": nics}})
    bios, nic = client.get("/v1/nodes/n/firmware").json["firmware"]
    assert (nic["component"], nic["initial_version"], nic["current_version"]) == ("nic:eth0", "2.0", "2.0")
    assert nic["updated_at"] is None
    assert bios.pop("created_at") <= bios.pop("updated_at")
    expected = {"component": "bios", "initial_version": "1.0", "current_version": "2.0", "last_version_flashed": None}
    assert bios == expected
    chosen, _ = client.get("/v1/nodes/n/firmware?fields=component").json["firmware"]
    assert set(chosen) == {"component", "created_at", "updated_at"}
    newer, other = service.client("1.114").get("/v1/nodes/n/firmware").json["firmware"]
    assert (other["vendor"], other["model"]) == ("Intel", "X710")
    assert {name: newer[name] for name in ("vendor", "model", "serial_number")} == {
        "vendor": "ACME",
        "model": None,
        "serial_number": None,
    }
    assert client.get("/v1/nodes/n/firmware?fields=vendor").status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "version", "status", "body"),
    [
        ("GET", "/v1/shards", "1.81", 404, None),
        ("GET", "/v1/nodes?shard=s1", "1.81", 406, None),
        ("GET", "/v1/nodes?sharded=x", "1.96", 400, None),
        ("GET", "/v1/nodes/n/children", "1.82", 404, None),
        ("GET", f"/v1/nodes/{UNKNOWN}/children", "1.96", 404, None),
        ("GET", "/v1/nodes/n/firmware", "1.85", 404, None),
        ("GET", "/v1/nodes/n/firmware?fields=bad", "1.96", 400, None),
        ("GET", f"/v1/nodes/{UNKNOWN}/firmware", "1.96", 404, None),
        # Out of scope: "Allocations (allocations)" 1.52, "Deploy Templates (deploy_templates)" 1.55, "Runbooks" 1.92,
        # "Volume (volume)" 1.32, "VIFs (Virtual Interfaces) of nodes" 1.28, "BIOS (nodes, bios)" 1.40
        ("GET", "/v1/allocations?node=n&limit=5", "1.52", 200, {"allocations": []}),
        ("GET", "/v1/allocations?limit=0", "1.52", 400, None),
        ("GET", "/v1/allocations?sort_dir=up", "1.52", 400, None),
        ("GET", "/v1/audit?before=0", "1.96", 400, None),
        ("DELETE", "/", "1.96", 405, None),
        ("DELETE", "/v1/nodes/", "1.96", 404, None),
        ("GET", "/v1/allocations", "1.51", 404, None),
        ("GET", "/v1/allocations/x", "1.96", 404, None),
        ("GET", "/v1/nodes/n/allocation", "1.96", 404, None),
        ("GET", "/v1/deploy_templates?detail=true", "1.55", 200, {"deploy_templates": []}),
        ("GET", "/v1/runbooks", "1.92", 200, {"runbooks": []}),
        ("GET", "/v1/volume/connectors", "1.32", 200, {"connectors": []}),
        ("GET", "/v1/volume/targets?fields=uuid", "1.32", 200, {"targets": []}),
        ("GET", "/v1/nodes/n/volume/connectors", "1.32", 200, {"connectors": []}),
        ("GET", "/v1/nodes/n/volume/targets", "1.32", 200, {"targets": []}),
        ("GET", "/v1/nodes/n/vifs", "1.28", 200, {"vifs": []}),
        ("POST", "/v1/nodes/n/vifs", "1.96", 405, None),
        ("GET", "/v1/nodes/n/bios", "1.40", 200, {"bios": []}),
        ("GET", "/v1/nodes/n/bios/x", "1.96", 404, None),
        ("PUT", "/v1/nodes/n/states/raid", "1.96", 404, None),
    ],
)
def test_answers(service: Service, method: str, path: str, version: str, status: int, body: Any) -> None:
    service.enrol(name="n")
    answer = service.client(version).call(method, path)
    assert answer.status_code == status, answer.text
    if body is not None:
        assert answer.json == body


def bookmarks(document: Any) -> set[str]:
    """Return the targets of all bookmark links in a response."""
    if isinstance(document, list):
        return set().union(*map(bookmarks, document))
    if not isinstance(document, dict):
        return set()
    if document.get("rel") == "bookmark":
        return {document["href"].removeprefix("http://localhost:6385")}
    return bookmarks(list(document.values()))


def test_every_bookmark_link_is_served(service: Service) -> None:
    """ "bookmark" links have no version in their path; such paths are those of v1."""
    client, node = service.bare_metal, service.enrol(name="n")
    service.store.write(lambda tx: tx.members.beat(examples.member(), 600.0))
    client.post("/v1/ports", {"node_uuid": node, "address": examples.mac()})
    client.post("/v1/portgroups", {"node_uuid": node})
    client.post("/v1/chassis", {})
    paths = {"/v1", "/v1/nodes/n", "/v1/ports/detail", "/v1/portgroups/detail", "/v1/chassis/detail"}
    paths |= {"/v1/drivers?detail=true", "/v1/conductors", "/v1/nodes/n/volume"}
    links = set().union(*(bookmarks(client.get(path).json) for path in paths))
    assert len(links) > 20
    for link in links - {"/lookup", "/heartbeat", "/continue_inspection"}:  # these take parameters
        assert not link.startswith("/v1")
        answer = client.get(link)
        assert answer.status_code == 200, link
        assert answer.json == client.get(f"/v1{link}").json


def test_other_paths_without_a_version_are_not_served(service: Service) -> None:
    for path in ("/nothing", "/v2/nodes", "/status", "/leases", "/introspection", "/rules", "//nodes", "/v1/v1/nodes"):
        assert service.bare_metal.get(path).status_code == 404, path
    assert service.bare_metal.get("/").json["default_version"]["id"] == "v1"
    assert service.bare_metal.post("/nodes", {"driver": "sim"}).status_code == 201
