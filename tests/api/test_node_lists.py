"""Lists of nodes: fields, filters, order, pages."""

from __future__ import annotations

import uuid

from ferroscope.api.baremetal.node_fields import FIELDS
from tests.api.service import Service, fault
from tests.api.test_nodes import REFERENCE_FIELDS


def test_list_shows_basic_fields_or_those_asked_for(service: Service) -> None:
    ident = service.enrol(name="a")
    basic = service.bare_metal.get("/v1/nodes").json["nodes"][0]
    assert set(basic) == {"instance_uuid", "maintenance", "power_state", "provision_state", "uuid", "name", "links"}
    chosen = service.bare_metal.get("/v1/nodes?fields=uuid,extra&fields=driver").json["nodes"][0]
    assert set(chosen) == {"uuid", "extra", "driver", "links"}
    for detail in ("/v1/nodes?detail=True", "/v1/nodes/detail"):
        assert set(service.bare_metal.get(detail).json["nodes"][0]) >= REFERENCE_FIELDS
    one = service.bare_metal.get(f"/v1/nodes/{ident}?fields=name")
    assert set(one.json) == {"name", "links"}


def test_bad_queries(service: Service) -> None:
    for version, query, status in [
        ("1.95", "fields=colour", 400),
        ("1.95", "fields=uuid&detail=true", 400),
        ("1.7", "fields=uuid", 406),
        ("1.42", "detail=true", 400),
        ("1.50", "fields=description", 406),
        ("1.95", "limit=0", 400),
        ("1.95", "marker=abc", 400),
        ("1.95", f"marker={uuid.UUID(int=1)}", 404),
        ("1.95", "sort_key=driver_info", 400),
        ("1.20", "sort_key=resource_class", 406),
        ("1.8", "provision_state=enroll", 406),
        ("1.83", "labels=a", 406),
        ("1.84", "labels=a%20b", 400),
        ("1.95", "maintenance=maybe", 400),
        ("1.95", "colour=red", 400),
        ("1.95", "owner=%ff%fe", 200),
    ]:
        answer = service.client(version).get(f"/v1/nodes?{query}")
        assert answer.status_code == status, (query, answer.text)
        if status != 200:
            assert fault(answer), query


def test_list_filters(service: Service) -> None:
    owner, instance = "8ae34", str(uuid.uuid4())
    plain = service.enrol(name="plain")
    rich = service.enrol(
        name="rich",
        driver="sim",
        owner=owner,
        resource_class="gold",
        conductor_group="Rack1",
        lessee="l1",
        shard="s1",
        instance_uuid=instance,
        maintenance=True,
        retired=True,
        description="The big One",
        labels={"rack": "r1", "example.com/spare": ""},
    )
    for query in (
        "driver=sim",
        f"owner={owner}",
        "resource_class=gold",
        "conductor_group=RACK1",
        "lessee=l1",
        "project=l1",
        f"project={owner}",
        "shard=s1,s2",
        "sharded=true",
        f"instance_uuid={instance}",
        "associated=true",
        "maintenance=True",
        "retired=1",
        "description_contains=big%20one",
        "labels=rack=r1,example.com/spare",
        "labels=rack%20in%20(r1,r2)",
    ):
        for chosen in ("", "&fields=uuid"):
            found = service.bare_metal.get(f"/v1/nodes?{query}{chosen}").json["nodes"]
            assert [n["uuid"] for n in found] == [rich], query
    for query in (
        "labels=!rack",
        "labels=rack!=r1",
        "associated=false",
        "maintenance=no",
        "sharded=false",
        "retired=false",
        "driver=fake-hardware",
    ):
        assert [n["uuid"] for n in service.bare_metal.get(f"/v1/nodes?{query}").json["nodes"]] == [plain], query
    assert len(service.bare_metal.get("/v1/nodes?provision_state=enroll").json["nodes"]) == 2
    for query in ("auto_discovered=true", "provision_state=available", "fault=power%20failure", "conductor=c1"):
        assert service.bare_metal.get(f"/v1/nodes?{query}").json["nodes"] == [], query


def test_a_field_is_the_same_alone_and_among_all(service: Service) -> None:
    """Only what is asked for is read, so a field that reads more than it declares would show a default."""
    service.enrol(name="parent")
    fields = {
        "name": "rich",
        "driver": "sim",
        "driver_info": {"deploy_iso": "http://images/own.iso", "secret_password": "x"},
        "properties": {"cpus": 4},
        "extra": {"a": 1},
        "labels": {"rack": "r1"},
        "instance_info": {"b": 2},
        "instance_uuid": str(uuid.uuid4()),
        "maintenance": True,
        "resource_class": "gold",
        "conductor_group": "rack1",
        "owner": "p1",
        "lessee": "p2",
        "description": "big",
        "parent_node": "parent",
    }
    added = service.bare_metal.post("/v1/nodes", fields).json  # shown without having been read
    path = f"/v1/nodes/{added['uuid']}"
    assert service.bare_metal.get(path).json == added
    listed = service.bare_metal.get("/v1/nodes/detail?include_children=true&driver=sim").json["nodes"]
    assert listed == [added]
    for name in added.keys() - {field.name for field in FIELDS if field.full_only}:
        expected = {name: added[name], "links": added["links"]}
        assert service.bare_metal.get(f"{path}?fields={name}").json == expected, name
        assert service.bare_metal.get(f"/v1/nodes/rich?fields={name}").json == expected, name
        found = service.bare_metal.get(f"/v1/nodes?fields={name}&include_children=true&driver=sim").json["nodes"]
        assert found == [expected], name


def test_pages_are_complete_and_next_keeps_the_filters(service: Service) -> None:
    idents = [service.enrol(name=f"n{i}", driver="sim" if i % 2 else "fake-hardware") for i in range(9)]
    seen, path = [], "/v1/nodes?limit=2&driver=sim&sort_key=name&sort_dir=desc&fields=uuid,name"
    while path:
        page = service.bare_metal.get(path).json
        assert len(page["nodes"]) <= 2
        seen += [node["name"] for node in page["nodes"]]
        path = page.get("next", "")
        if path:
            assert "driver=sim" in path
            path = path[path.index("/v1/") :]
    assert seen == ["n7", "n5", "n3", "n1"]
    # As in Ironic: what is equal comes in the order of creation.
    for key in ("id", "provision_state", "lessee", "last_error", "reservation", "conductor_affinity", "retired"):
        assert [n["uuid"] for n in service.bare_metal.get(f"/v1/nodes?sort_key={key}").json["nodes"]] == idents, key


def test_filters_without_an_index_still_fill_their_pages(service: Service) -> None:
    for i in range(7):
        service.enrol(name=f"n{i}", shard="even" if i % 2 == 0 else "odd")
    first = service.bare_metal.get("/v1/nodes?shard=even&limit=3").json
    assert [n["name"] for n in first["nodes"]] == ["n0", "n2", "n4"]
    rest = service.bare_metal.get(first["next"][first["next"].index("/v1/") :]).json
    assert [n["name"] for n in rest["nodes"]] == ["n6"]
    assert "next" not in rest


def test_max_limit_bounds_every_page(sqlite_url: str) -> None:
    service = Service(sqlite_url, max_limit=2)
    for _ in range(3):
        service.enrol()
    assert len(service.bare_metal.get("/v1/nodes?limit=100").json["nodes"]) == 2
    assert len(service.bare_metal.get("/v1/nodes").json["nodes"]) == 2
