"""Ports and drivers."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.service import Service, fault
from tests.support import examples
from tests.support.rows import each

ALL_FIELDS = {
    "address",
    "available_for_dynamic_portgroup",
    "category",
    "created_at",
    "description",
    "extra",
    "internal_info",
    "is_smartnic",
    "links",
    "local_link_connection",
    "name",
    "node_uuid",
    "physical_network",
    "portgroup_uuid",
    "pxe_enabled",
    "updated_at",
    "uuid",
    "vendor",
}


def create(service: Service, node: str, **fields: Any) -> dict[str, Any]:
    answer = service.bare_metal.post("/v1/ports", {"node_uuid": node, "address": examples.mac(), **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json)


def test_create_answers_201_with_every_field(service: Service) -> None:
    node = service.enrol()
    answer = service.bare_metal.post(
        "/v1/ports",
        {
            "node_uuid": node,
            "address": "52-54-00-AB-CD-EF",
            "name": "eth0",
            "pxe_enabled": "False",
            "physical_network": "net1",
            "local_link_connection": {"port_id": "1", "switch_id": "aa:bb:cc:dd:ee:ff", "switch_info": "s1"},
            "extra": {"a": 1},
        },
    )
    port = answer.json
    assert answer.status_code == 201
    assert answer.headers["Location"].endswith(f"/v1/ports/{port['uuid']}")
    assert set(port) == ALL_FIELDS
    assert (port["address"], port["pxe_enabled"], port["is_smartnic"]) == ("52:54:00:ab:cd:ef", False, False)
    assert port["local_link_connection"] == {"port_id": "1", "switch_id": "aa:bb:cc:dd:ee:ff", "switch_info": "s1"}
    assert service.bare_metal.get(f"/v1/ports/{port['uuid']}").json == port


def test_node_may_be_named_from_1_94_on(service: Service) -> None:
    service.enrol(name="n")
    body = {"node_ident": "n", "address": examples.mac()}
    assert service.client("1.93").post("/v1/ports", body).status_code == 406
    assert service.client("1.94").post("/v1/ports", body).status_code == 201


def test_port_is_found_by_uuid_mac_and_name(service: Service) -> None:
    port = create(service, service.enrol(), name="eth0")
    for by in (port["uuid"], port["address"], port["address"].upper(), "eth0"):
        assert service.bare_metal.get(f"/v1/ports/{by}").json["uuid"] == port["uuid"]
    assert service.client("1.87").get("/v1/ports/eth0").status_code == 404
    for nothing in (str(uuid.uuid4()), examples.mac(), "eth1"):
        assert service.bare_metal.get(f"/v1/ports/{nothing}").status_code == 404


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"address": "52:54:00"}, "MAC"),
        ({"address": None}, "address"),
        ({"node_uuid": str(uuid.UUID(int=7))}, str(uuid.UUID(int=7))),
        ({"node_uuid": "abc"}, "node_uuid"),
        ({"portgroup_uuid": str(uuid.UUID(int=7))}, "portgroup_uuid"),
        ({"physical_network": "x" * 65}, "physical_network"),
        ({"pxe_enabled": "perhaps"}, "pxe_enabled"),
        ({"local_link_connection": {"port_id": "1"}}, "switch_id"),
        ({"local_link_connection": {"network_type": "wild"}}, "network_type"),
        ({"local_link_connection": {"port_id": "1", "switch_id": "sw1"}}, "sw1"),
        ({"node_ident": "n"}, "node_ident"),
    ],
)
def test_bad_body_is_400_and_says_what(service: Service, fields: dict[str, Any], named: str) -> None:
    body = {"node_uuid": service.enrol(name="n"), "address": examples.mac()} | fields
    answer = service.bare_metal.post("/v1/ports", body)
    assert answer.status_code == 400, answer.text
    assert named in fault(answer)


def test_list_and_its_filters(service: Service) -> None:
    one, two = service.enrol(name="one"), service.enrol(name="two")
    first, second, third = create(service, one), create(service, one), create(service, two)
    basic = service.bare_metal.get("/v1/ports").json["ports"]
    assert [port["uuid"] for port in basic] == [first["uuid"], second["uuid"], third["uuid"]]
    assert set(basic[0]) == {"uuid", "address", "links"}
    for query in ("node=one", f"node={one}", f"node_uuid={one}"):
        assert len(service.bare_metal.get(f"/v1/ports?{query}").json["ports"]) == 2, query
    found = service.bare_metal.get(f"/v1/ports?address={third['address'].upper()}&fields=node_uuid").json["ports"]
    assert [port["node_uuid"] for port in found] == [two]
    assert service.bare_metal.get(f"/v1/ports?address={examples.mac()}").json["ports"] == []
    assert set(service.bare_metal.get("/v1/ports/detail").json["ports"][0]) == ALL_FIELDS
    assert set(service.bare_metal.get("/v1/ports?detail=true").json["ports"][0]) == ALL_FIELDS
    assert len(service.bare_metal.get("/v1/nodes/one/ports").json["ports"]) == 2
    assert set(service.bare_metal.get("/v1/nodes/two/ports/detail").json["ports"][0]) == ALL_FIELDS


@each("name", ["sw1:Eth1", "Ethernet 1/1", "a,b", "x@y", "states", "ł", str(uuid.uuid4()), ""])
def test_a_port_has_any_name_as_in_ironic(service: Service, name: str) -> None:
    """rackerlabs/understack names every port NODE:LABEL."""
    made = create(service, service.enrol(), name=name)
    assert made["name"] == name
    patched = service.bare_metal.patch(f"/v1/ports/{made['uuid']}", {"op": "replace", "path": "/name", "value": name})
    assert patched.json["name"] == name
    if name in ("sw1:Eth1", "a,b", "states"):
        assert service.bare_metal.get(f"/v1/ports/{name}").json["uuid"] == made["uuid"]


def test_ports_are_listed_by_the_shard_of_their_node(service: Service) -> None:
    port = create(service, service.enrol(shard="s1"))
    other = create(service, service.enrol(shard="s2"))
    create(service, service.enrol())
    for shards, expected in (("s1", [port]), ("s1,s2", [port, other]), ("s3", [])):
        listed = [one["uuid"] for one in service.bare_metal.get(f"/v1/ports?shard={shards}").json["ports"]]
        assert listed == [one["uuid"] for one in expected]
    assert service.client("1.81").get("/v1/ports?shard=s1").status_code == 406


def test_bad_queries(service: Service) -> None:
    for version, query, status in [
        ("1.95", "address=nonsense", 400),
        ("1.95", "node=nobody", 404),
        ("1.33", "fields=physical_network", 406),
        ("1.87", "sort_key=name", 406),
    ]:
        answer = service.client(version).get(f"/v1/ports?{query}")
        assert answer.status_code == status, query
        assert fault(answer), query


def test_patch(service: Service) -> None:
    node, other = service.enrol(), service.enrol(name="other")
    port = create(service, node, extra={"a": 1})
    address = examples.mac()
    answer = service.bare_metal.patch(
        f"/v1/ports/{port['uuid']}",
        {"op": "replace", "path": "/address", "value": address.upper()},
        {"op": "add", "path": "/extra/b", "value": 2},
        {"op": "add", "path": "/local_link_connection/port_id", "value": "7"},
        {"op": "add", "path": "/local_link_connection/switch_id", "value": "0x00005254000A0107"},
        {"op": "replace", "path": "/pxe_enabled", "value": False},
        {"op": "replace", "path": "/node_uuid", "value": other},
    )
    assert answer.status_code == 200, answer.text
    changed = answer.json
    assert (changed["address"], changed["extra"], changed["pxe_enabled"]) == (address, {"a": 1, "b": 2}, False)
    assert changed["local_link_connection"] == {"port_id": "7", "switch_id": "0x00005254000a0107"}
    assert changed["node_uuid"] == other


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        ("/internal_info", {}, 400),
        ("/node_uuid", str(uuid.UUID(int=1)), 400),
        ("/local_link_connection/colour", "red", 400),
        ("/local_link_connection", {"port_id": "1", "switch_id": "52:54:00"}, 400),
    ],
)
def test_bad_patches(service: Service, path: str, value: Any, status: int) -> None:
    port = create(service, service.enrol())
    answer = service.bare_metal.patch(f"/v1/ports/{port['uuid']}", {"op": "add", "path": path, "value": value})
    assert answer.status_code == status
    assert fault(answer)


def test_fields_are_hidden_below_their_microversion(service: Service) -> None:
    port = create(service, service.enrol())
    oldest = service.client("1.1").get(f"/v1/ports/{port['uuid']}").json
    assert set(oldest) == {"address", "created_at", "extra", "links", "node_uuid", "updated_at", "uuid"}


def test_drivers(service: Service) -> None:
    drivers = service.bare_metal.get("/v1/drivers").json["drivers"]
    assert [driver["name"] for driver in drivers] == ["fake-hardware", "sim"]
    assert set(drivers[0]) == {"name", "hosts", "links", "properties", "type"}
    shown = service.bare_metal.get("/v1/drivers/sim").json
    assert (shown["default_power_interface"], shown["enabled_inspect_interfaces"]) == ("fake", ["agent", "no-inspect"])
    assert "default_firmware_interface" not in service.client("1.85").get("/v1/drivers/sim").json
    assert service.bare_metal.get("/v1/drivers?type=classic").json == {"drivers": []}
    assert service.bare_metal.get("/v1/drivers?fields=name,type").json["drivers"][0]["type"] == "dynamic"
    assert service.bare_metal.get("/v1/drivers/sim/properties").json.keys() == {"bmc_address"}
    assert service.bare_metal.get("/v1/drivers/ipmi").status_code == 404
    assert service.bare_metal.get("/v1/drivers?type=odd").status_code == 400
    assert service.bare_metal.get("/v1/drivers?fields=odd").status_code == 400
    assert service.client("1.29").get("/v1/drivers?detail=true").status_code == 406
    service.consume()
    assert service.bare_metal.get("/v1/drivers/sim").json["hosts"] == ["example"]
