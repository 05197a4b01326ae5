"""Port groups. Source of each line: "Portgroups (portgroups)" of the Bare Metal API reference, and Ironic 39.0.0."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.api.auth.identity import local
from tests.api.callers import As, service_for
from tests.api.published import add, remove
from tests.api.service import Service, fault
from tests.support import databases, examples

UNKNOWN = "11111111-2222-4333-8444-555555555555"
MAC = "52:54:00:ab:cd:ef"
FIELDS = {
    "address", "created_at", "extra", "internal_info", "links", "mode", "name", "node_uuid", "ports", "properties",
    "standalone_ports_supported", "updated_at", "uuid",
}  # fmt: skip


def create(service: Service, node: str, **fields: Any) -> dict[str, Any]:
    answer = service.bare_metal.post("/v1/portgroups", {"node_uuid": node, **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json)


def test_a_port_group_is_created_shown_and_found_in_lists(service: Service) -> None:
    """ "Create Portgroup", "Show Portgroup Details", "List Portgroups", "List Detailed Portgroups"."""
    node, client = service.enrol(name="n"), service.client("1.96")
    plain = client.post("/v1/portgroups", {"node_uuid": node}).json
    assert set(plain) == FIELDS
    assert (plain["mode"], plain["standalone_ports_supported"], plain["address"]) == ("active-backup", True, None)
    values = {"name": "bond0", "mode": "802.3ad", "properties": {"miimon": "100"}, "extra": {"a": 1}}
    answer = client.post(
        "/v1/portgroups", {"node_uuid": node, "address": MAC.upper(), "standalone_ports_supported": "no", **values}
    )
    group = answer.json
    assert answer.headers["Location"] == f"http://localhost:6385/v1/portgroups/{group['uuid']}"
    assert {name: group[name] for name in values} == values
    assert (group["address"], group["standalone_ports_supported"], group["node_uuid"]) == (MAC, False, node)
    for path in (group["uuid"], "bond0"):
        assert client.get(f"/v1/portgroups/{path}").json == group
    assert client.get("/v1/portgroups/detail").json == {"portgroups": [plain, group]}
    assert client.get("/v1/nodes/n/portgroups/detail").json == {"portgroups": [plain, group]}
    brief = {name: group[name] for name in ("uuid", "address", "name", "links")}
    for path in (f"/v1/portgroups?address={MAC}", "/v1/portgroups?node=n&sort_key=mode&limit=1"):
        assert client.get(path).json["portgroups"] == [brief], path
    assert client.get("/v1/nodes/n/portgroups").json["portgroups"][1] == brief
    old = service.client("1.25").get("/v1/portgroups/bond0").json
    assert set(old) == FIELDS - {"mode", "properties"}


@pytest.mark.parametrize(
    ("method", "path", "body", "version", "status"),
    [
        # "Portgroups were added in 1.23"; mode and properties in 1.26; the lists of nodes and ports in 1.24
        ("POST", "", {}, "1.22", 404),
        ("GET", "", None, "1.22", 404),
        ("DELETE", "/bond0", None, "1.22", 404),
        ("GET", "/bond0/ports", None, "1.23", 404),
        ("POST", "", {"mode": "x"}, "1.25", 406),
        ("POST", "", {"mode": "x"}, "1.26", 201),
        ("GET", "/bond0?fields=mode", None, "1.25", 406),
        ("GET", "?sort_key=mode", None, "1.25", 406),
        ("PATCH", "/bond0", [add("/mode", "x")], "1.25", 406),
        # bad values
        ("POST", "", {"node_uuid": UNKNOWN}, "1.96", 400),
        ("POST", "", {"node_uuid": None}, "1.96", 400),
        ("POST", "", {"name": "bond0"}, "1.96", 409),
        ("POST", "", {"address": MAC}, "1.96", 409),
        ("POST", "", {"address": "zz"}, "1.96", 400),
        ("POST", "", {"standalone_ports_supported": "perhaps"}, "1.96", 400),
        ("GET", "/nothing", None, "1.96", 404),
        ("GET", f"/{UNKNOWN}", None, "1.96", 404),
        ("GET", "/a%20b", None, "1.96", 400),
        ("GET", "?node=nothing", None, "1.96", 404),
        ("GET", f"?node=n&address={MAC}", None, "1.96", 400),
        ("PATCH", "/bond0", [remove("/mode")], "1.96", 400),
        ("PATCH", "/bond0", [add("/node_uuid", UNKNOWN)], "1.96", 400),
        ("PATCH", "/bond0", [add("/address", "52:54:00:00:00:02")], "1.96", 409),
        ("DELETE", "/nothing", None, "1.96", 404),
        ("DELETE", "/bond0", None, "1.23", 204),
    ],
)
def test_answers(service: Service, method: str, path: str, body: Any, version: str, status: int) -> None:
    node = service.enrol(name="n")
    create(service, node, name="bond0", address=MAC)
    create(service, node, address="52:54:00:00:00:02")
    if isinstance(body, dict):
        body = {name: value for name, value in ({"node_uuid": node} | body).items() if value is not None}
    answer = service.client(version).call(method, f"/v1/portgroups{path}", body)
    assert answer.status_code == status, answer.text


def test_a_patch_changes_every_settable_field(service: Service) -> None:
    """ "Update a Portgroup"."""
    node, other = service.enrol(), service.enrol()
    path = f"/v1/portgroups/{create(service, node, extra={'a': 1})['uuid']}"
    wanted = {"name": "b", "address": MAC, "mode": "balance-rr", "properties": {"x": 1}, "extra": {"b": 2}}
    wanted |= {"standalone_ports_supported": False, "node_uuid": other}
    patched = service.bare_metal.patch(path, *(add(f"/{name}", value) for name, value in wanted.items())).json
    assert {name: patched[name] for name in wanted} == wanted
    gone = ("name", "address", "properties", "extra", "standalone_ports_supported")
    cleared = service.bare_metal.patch(path, *(remove(f"/{name}") for name in gone)).json
    assert {name: cleared[name] for name in gone} == {
        "name": None,
        "address": None,
        "properties": {},
        "extra": {},
        "standalone_ports_supported": True,
    }


def test_ports_belong_to_a_port_group_of_their_node(service: Service) -> None:
    """ "Create Port" and "Update a Port": ``portgroup_uuid`` since 1.24; "List Ports by Portgroup"."""
    node, other, client = service.enrol(), service.enrol(), service.bare_metal
    group, foreign = create(service, node, name="bond0")["uuid"], create(service, other)["uuid"]
    body = {"node_uuid": node, "address": examples.mac(), "portgroup_uuid": group}
    assert service.client("1.23").post("/v1/ports", body).status_code == 406
    port = client.post("/v1/ports", body).json
    assert port["portgroup_uuid"] == group
    for path in (f"/v1/ports?portgroup={group}", "/v1/ports?portgroup=bond0", "/v1/portgroups/bond0/ports/detail"):
        assert [one["uuid"] for one in client.get(path).json["ports"]] == [port["uuid"]], path
    assert client.get("/v1/ports?portgroup=nothing").status_code == 404
    assert service.client("1.23").get(f"/v1/ports?portgroup={group}").status_code == 406
    for bad in (foreign, UNKNOWN, "bad"):
        new = {"node_uuid": node, "address": examples.mac(), "portgroup_uuid": bad}
        assert client.post("/v1/ports", new).status_code == 400, bad
        assert client.patch(f"/v1/ports/{port['uuid']}", add("/portgroup_uuid", bad)).status_code == 400, bad
    assert client.patch(f"/v1/ports/{port['uuid']}", add("/node_uuid", other)).status_code == 400
    for refused in (
        client.delete(f"/v1/portgroups/{group}"),
        client.patch("/v1/portgroups/bond0", add("/node_uuid", other)),
    ):
        assert (refused.status_code, "contains ports" in fault(refused)) == (400, True)
    removed = client.patch(f"/v1/ports/{port['uuid']}", remove("/portgroup_uuid"))
    assert removed.json["portgroup_uuid"] is None
    assert client.delete(f"/v1/portgroups/{group}").status_code == 204


def test_a_port_must_fit_its_port_group(service: Service) -> None:
    """No PXE where standalone ports are not supported, and one physical network for all ports: 409."""
    node, client = service.enrol(), service.client("1.96")
    bonded = create(service, node, standalone_ports_supported=False)["uuid"]
    body = {"node_uuid": node, "portgroup_uuid": bonded, "physical_network": "a"}
    assert client.post("/v1/ports", {**body, "address": examples.mac(), "pxe_enabled": True}).status_code == 409
    assert client.post("/v1/ports", {**body, "address": examples.mac()}).status_code == 201
    assert client.post("/v1/ports", {**body, "address": examples.mac(), "physical_network": "b"}).status_code == 409
    second = client.post("/v1/ports", {**body, "address": examples.mac()}).json["uuid"]
    assert client.patch(f"/v1/ports/{second}", add("/physical_network", "b")).status_code == 409


def test_newer_versions_add_fields_and_the_filter_by_shard(service: Service) -> None:
    """``physical_network`` 1.102, ``category`` 1.103, ``shard`` 1.106, ``dynamic_portgroup`` 1.111."""
    node, other = service.enrol(shard="s1"), service.enrol(shard="s2")
    newest, old = service.client("1.111"), service.client("1.101")
    body = {"node_uuid": node, "physical_network": "a", "category": "data"}
    assert old.post("/v1/portgroups", body).status_code == 406
    assert service.client("1.102").post("/v1/portgroups", body).status_code == 406
    group = newest.post("/v1/portgroups", body).json
    added = {"physical_network", "category", "dynamic_portgroup"}
    assert {name: group[name] for name in added} == {
        "physical_network": "a",
        "category": "data",
        "dynamic_portgroup": False,
    }
    path = f"/v1/portgroups/{group['uuid']}"
    assert not added & set(old.get(path).json)
    foreign = create(service, other)["uuid"]
    for shards, found in (("s1", [group["uuid"]]), ("s2,s3", [foreign]), ("s3", [])):
        listed = newest.get(f"/v1/portgroups?shard={shards}").json["portgroups"]
        assert [one["uuid"] for one in listed] == found, shards
    assert service.client("1.105").get("/v1/portgroups?shard=s1").status_code == 406
    assert newest.get(f"/v1/portgroups?shard=s1&node={node}").status_code == 400
    port = {"node_uuid": node, "address": examples.mac(), "portgroup_uuid": group["uuid"], "physical_network": "a"}
    uuid = newest.post("/v1/ports", port).json["uuid"]
    assert newest.patch(f"/v1/ports/{uuid}", add("/physical_network", "b")).status_code == 400
    assert newest.patch(path, add("/physical_network", "b")).json["physical_network"] == "b"
    assert newest.get(f"/v1/ports/{uuid}").json["physical_network"] == "b"
    assert newest.patch(path, add("/dynamic_portgroup", True)).status_code == 400


@pytest.fixture
def shared(tmp_path: Any) -> Service:
    identities = {"root": local("root", "token", ["admin"])}
    identities |= {who: local(who, "token", ["reader"], project=f"p_{who}") for who in "ab"}
    return service_for(databases.sqlite(tmp_path), identities)


def test_a_project_sees_the_port_groups_of_its_nodes_only(shared: Service) -> None:
    root, groups = As(shared.bare_metal, "root"), {}
    for who in "ab":
        node = root("POST", "/v1/nodes", {"driver": "sim", "owner": f"p_{who}"}).json["uuid"]
        groups[who] = root("POST", "/v1/portgroups", {"node_uuid": node, "name": who}).json["uuid"]
    own = As(shared.bare_metal, "a")
    assert [one["uuid"] for one in own("GET", "/v1/portgroups").json["portgroups"]] == [groups["a"]]
    assert own("GET", f"/v1/portgroups/{groups['a']}").status_code == 200
    for path in (f"/v1/portgroups/{groups['b']}", "/v1/portgroups/b/ports", f"/v1/portgroups?marker={groups['b']}"):
        assert own("GET", path).status_code == 404, path
    assert own("GET", f"/v1/ports?portgroup={groups['b']}").status_code == 404
