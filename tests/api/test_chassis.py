"""Chassis. Source of each line: "Chassis (chassis)" of the Bare Metal API reference, and Ironic 39.0.0."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.api.published import add, remove
from tests.api.service import Service, fault

UNKNOWN = "11111111-2222-4333-8444-555555555555"


def create(service: Service, **fields: Any) -> str:
    answer = service.bare_metal.post("/v1/chassis", fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json["uuid"])


def test_a_chassis_is_created_shown_and_found_in_lists(service: Service) -> None:
    """ "Create Chassis", "Show Chassis Details", "List Chassis", "List Chassis With Details"."""
    answer = service.bare_metal.post("/v1/chassis", {"description": "rack 1", "extra": {"a": [1]}})
    chassis = answer.json
    uuid = chassis["uuid"]
    assert (answer.status_code, answer.headers["Location"]) == (201, f"http://localhost:6385/v1/chassis/{uuid}")
    assert {name: chassis[name] for name in ("description", "extra", "updated_at")} == {
        "description": "rack 1",
        "extra": {"a": [1]},
        "updated_at": None,
    }
    assert [link["href"] for link in chassis["links"]] == [
        f"http://localhost:6385/v1/chassis/{uuid}",
        f"http://localhost:6385/chassis/{uuid}",
    ]
    assert chassis["nodes"][0]["href"] == f"http://localhost:6385/v1/chassis/{uuid}/nodes"
    assert service.bare_metal.get(f"/v1/chassis/{uuid}").json == chassis
    assert service.client("1.1").get(f"/v1/chassis/{uuid}").json == chassis
    assert service.bare_metal.get("/v1/chassis/detail").json == {"chassis": [chassis]}
    assert service.bare_metal.get("/v1/chassis?detail=true").json == {"chassis": [chassis]}
    (listed,) = service.bare_metal.get("/v1/chassis").json["chassis"]
    assert listed == {name: chassis[name] for name in ("uuid", "description", "links")}
    (chosen,) = service.bare_metal.get("/v1/chassis?fields=extra").json["chassis"]
    assert set(chosen) == {"extra", "links"}
    assert set(service.bare_metal.get(f"/v1/chassis/{uuid}?fields=nodes").json) == {"nodes", "links"}


@pytest.mark.parametrize(
    ("method", "path", "body", "version", "status"),
    [
        ("POST", "", None, "1.1", 201),
        ("POST", "", {"uuid": UNKNOWN, "description": None, "extra": None}, "1.1", 201),
        ("POST", "", {"uuid": "{uuid}"}, "1.96", 409),
        ("POST", "", {"uuid": "bad"}, "1.96", 400),
        ("POST", "", {"description": "x" * 256}, "1.96", 400),
        ("POST", "", {"name": "x"}, "1.96", 400),
        ("GET", f"/{UNKNOWN}", None, "1.96", 404),
        ("GET", "/bad", None, "1.96", 400),
        ("GET", "/{uuid}?fields=uuid", None, "1.7", 406),
        ("GET", "?fields=uuid", None, "1.7", 406),
        ("GET", "?detail=true", None, "1.42", 400),
        ("GET", "?sort_key=extra", None, "1.96", 400),
        ("GET", f"?marker={UNKNOWN}", None, "1.96", 404),
        ("GET", f"/{UNKNOWN}/nodes", None, "1.96", 404),
        ("PATCH", "/{uuid}", [add("/uuid", UNKNOWN)], "1.96", 400),
        ("PATCH", f"/{UNKNOWN}", [add("/description", "x")], "1.96", 404),
        ("DELETE", f"/{UNKNOWN}", None, "1.96", 404),
        ("DELETE", "/{uuid}", None, "1.1", 204),
    ],
)
def test_answers(service: Service, method: str, path: str, body: Any, version: str, status: int) -> None:
    uuid = create(service, description="d")
    if isinstance(body, dict) and body.get("uuid") == "{uuid}":
        body = {"uuid": uuid}
    answer = service.client(version).call(method, f"/v1/chassis{path.replace('{uuid}', uuid)}", body)
    assert answer.status_code == status, answer.text


def test_a_patch_changes_description_and_extra(service: Service) -> None:
    """ "Update a Chassis"."""
    path = f"/v1/chassis/{create(service, description='d', extra={'a': 1})}"
    patched = service.bare_metal.patch(path, add("/description", "new"), add("/extra/b", 2)).json
    assert (patched["description"], patched["extra"]) == ("new", {"a": 1, "b": 2})
    assert patched["updated_at"] is not None
    removed = [remove("/description"), remove("/extra")]
    assert service.bare_metal.patch(path, *removed).status_code == 200
    shown = service.bare_metal.get(path).json
    assert (shown["description"], shown["extra"]) == (None, {})


def test_nodes_have_a_chassis(service: Service) -> None:
    """ "Create Node", "Update Node" and "List Nodes" (``chassis_uuid``); "chassis_uuid may be unset" since 1.25."""
    chassis, other, client = create(service), create(service), service.bare_metal
    node = service.enrol(name="in", chassis_uuid=chassis)
    outside = service.enrol(name="out")
    assert client.get("/v1/nodes/in").json["chassis_uuid"] == chassis
    for path in (
        f"/v1/nodes?chassis_uuid={chassis}",
        f"/v1/chassis/{chassis}/nodes",
        f"/v1/chassis/{chassis}/nodes/detail",
    ):
        assert [one["uuid"] for one in client.get(path).json["nodes"]] == [node], path
    assert client.get(f"/v1/nodes?chassis_uuid={UNKNOWN}").status_code == 404
    assert client.get("/v1/nodes?chassis_uuid=bad").status_code == 400
    for bad in (UNKNOWN, "bad"):
        assert client.post("/v1/nodes", {"driver": "sim", "chassis_uuid": bad}).status_code == 400
        assert client.patch(f"/v1/nodes/{outside}", add("/chassis_uuid", bad)).status_code == 400
    assert client.patch(f"/v1/nodes/{node}", add("/chassis_uuid", other)).json["chassis_uuid"] == other
    refused = client.delete(f"/v1/chassis/{other}")
    assert (refused.status_code, "contains nodes" in fault(refused)) == (400, True)
    unset = remove("/chassis_uuid")
    assert service.client("1.24").patch(f"/v1/nodes/{node}", unset).status_code == 406
    assert service.client("1.25").patch(f"/v1/nodes/{node}", unset).json["chassis_uuid"] is None
    assert client.delete(f"/v1/chassis/{other}").status_code == 204
    assert client.delete(f"/v1/chassis/{other}").status_code == 404


def test_a_chassis_is_not_deleted_while_a_node_is_put_into_it(everywhere: Service) -> None:
    """Either the node is refused or the chassis stays: no node is left with a chassis that does not exist."""
    client, failures = everywhere.bare_metal, []

    def run(number: int) -> None:
        chassis = create(everywhere)
        together = threading.Barrier(2)

        def enroll() -> None:
            together.wait()
            client.post("/v1/nodes", {"driver": "sim", "name": f"n{number}", "chassis_uuid": chassis})

        thread = threading.Thread(target=enroll)
        thread.start()
        together.wait()
        client.delete(f"/v1/chassis/{chassis}")
        thread.join()
        exists = client.get(f"/v1/chassis/{chassis}").status_code == 200
        if exists != (client.get(f"/v1/nodes/n{number}").status_code == 200):
            failures.append(number)

    for number in range(20):
        run(number)
    assert failures == []
