"""What the comparison with ironic-inspector and Ironic says, without running any of the three."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from bench.incumbents_plan import LEAST, MOST, Run, pauses, size
from bench.incumbents_services import SIDES, Environment, differing
from bench.incumbents_stub import Nodes
from bench.incumbents_turns import Turn


def test_what_is_wrong_is_kept_for_each_round() -> None:
    turn = Turn()
    failed = Run(inspections=2, seconds=1, callbacks=[], looks=0, repeated=0, wrong={"machine 1": "it is error"})
    turn.add(failed, {"machine 1": "it is error; no inventory", "machine 2": "power on"}, 1, 1, 2)
    turn.add(failed, {}, 1, 1, 2)
    assert turn.wrong == {
        "machine 1, round 1": "it is error",
        "machine 2, round 1": "power on",
        "machine 1, round 2": "it is error",
    }


def test_services_with_different_interpreters_are_not_compared() -> None:
    one = Environment("/usr/bin/python3.11", "3.11.2", "1.0")
    other = Environment("/opt/python/bin/python3.11", "3.11.2", "39.0.0")
    assert differing({side.name: one for side in SIDES}) == ""
    assert "/opt/python/bin/python3.11" in differing({"ours": one, "Ironic": other})


def test_callbacks_have_the_sizes_that_the_page_says() -> None:
    sizes = [size(number) for number in range(1, 500)]
    assert LEAST <= min(sizes) < LEAST + 500
    assert MOST - 500 < max(sizes) <= MOST


def test_a_slow_service_is_looked_at_more_rarely() -> None:
    waits = list(itertools.islice(pauses(), 20))
    assert waits == sorted(waits)
    assert waits[0] < waits[5] < waits[-1] == waits[-2]


def _call(nodes: Nodes, method: str, path: str, body: Any = None) -> Any:
    status, document = nodes.answer(method, path, body)
    assert status < 300, document
    return msgspec.json.decode(msgspec.json.encode(document))


def test_the_bare_metal_api_that_costs_nothing_remembers_what_it_is_told() -> None:
    nodes = Nodes("http://127.0.0.1:1")
    uuid = _call(nodes, "POST", "/v1/nodes", {"name": "a", "driver": "fake-hardware"})["uuid"]
    other = _call(nodes, "POST", "/v1/nodes", {"name": "b"})["uuid"]
    port = _call(nodes, "POST", "/v1/ports", {"node_uuid": uuid, "address": "02:00:00:00:00:01"})
    _call(nodes, "PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
    _call(nodes, "PUT", f"/v1/nodes/{uuid}/states/power", {"target": "rebooting"})
    _call(nodes, "PATCH", f"/v1/nodes/{uuid}", [{"op": "add", "path": "/properties/cpus", "value": "8"}])
    _call(nodes, "PATCH", f"/v1/ports/{port['uuid']}", [{"op": "replace", "path": "/pxe_enabled", "value": False}])
    node = _call(nodes, "GET", f"/v1/nodes/{uuid}?fields=uuid")
    assert (node["provision_state"], node["power_state"]) == ("manageable", "power on")
    assert node["properties"] == {"cpus": "8"}
    assert _call(nodes, "GET", f"/v1/ports/detail?node={uuid}")["ports"] == [port | {"pxe_enabled": False}]
    assert _call(nodes, "GET", f"/v1/ports?node={other}")["ports"] == []
    assert _call(nodes, "GET", "/v1/ports?address=02:00:00:00:00:01")["ports"][0]["uuid"] == port["uuid"]
    assert _call(nodes, "GET", f"/v1/nodes/{uuid}/validate")["power"]["result"]
    assert {one["uuid"] for one in _call(nodes, "GET", "/v1/nodes?fields=uuid")["nodes"]} == {uuid, other}


def test_the_bare_metal_api_that_costs_nothing_refuses_what_ironic_refuses() -> None:
    nodes = Nodes()
    uuid = _call(nodes, "POST", "/v1/nodes", {"name": "a"})["uuid"]
    _call(nodes, "POST", "/v1/ports", {"node_uuid": uuid, "address": "02:00:00:00:00:01"})
    assert nodes.answer("POST", "/v1/ports", {"node_uuid": uuid, "address": "02:00:00:00:00:01"})[0] == 409
    assert nodes.answer("GET", "/v1/nodes/unknown")[0] == 404
    assert nodes.answer("GET", "/v1/unknown")[0] == 404
