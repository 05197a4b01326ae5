"""Traits of nodes. Source of each line: "Node Traits (nodes)" of the Bare Metal API reference, and Ironic 39.0.0."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.service import Service, fault

CUSTOM = [f"CUSTOM_{number:02}" for number in range(51)]


@pytest.fixture
def node(service: Service) -> str:
    ident = service.enrol(name="n")
    assert service.bare_metal.put("/v1/nodes/n/traits", {"traits": ["CUSTOM_B", "CUSTOM_A"]}).status_code == 204
    return ident


# Method, path below the node, body, status, and the traits that the node has then.
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "traits"),
    [
        # "Set all traits of a node": replaces all traits of a node
        ("PUT", "traits", {"traits": ["HW_CPU_X86_VMX", "CUSTOM_C"]}, 204, ["CUSTOM_C", "HW_CPU_X86_VMX"]),
        ("PUT", "traits", {"traits": []}, 204, []),
        ("PUT", "traits", {"traits": CUSTOM[:50]}, 204, CUSTOM[:50]),
        ("PUT", "traits", {"traits": CUSTOM}, 400, ["CUSTOM_A", "CUSTOM_B"]),
        ("PUT", "traits", {"traits": ["CUSTOM_C", "no"]}, 400, ["CUSTOM_A", "CUSTOM_B"]),
        ("PUT", "traits", {"traits": [1]}, 400, ["CUSTOM_A", "CUSTOM_B"]),
        ("PUT", "traits", None, 400, ["CUSTOM_A", "CUSTOM_B"]),
        # "Add a trait to a node": no body; a trait that the node has is no error
        ("PUT", "traits/CUSTOM_C", None, 204, ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"]),
        ("PUT", "traits/CUSTOM_A", None, 204, ["CUSTOM_A", "CUSTOM_B"]),
        ("PUT", "traits/CUSTOM_C", {"traits": ["CUSTOM_D"]}, 400, ["CUSTOM_A", "CUSTOM_B"]),
        ("PUT", f"traits/CUSTOM_{'A' * 248}", None, 204, ["CUSTOM_A", f"CUSTOM_{'A' * 248}", "CUSTOM_B"]),
        ("PUT", f"traits/CUSTOM_{'A' * 249}", None, 400, ["CUSTOM_A", "CUSTOM_B"]),
        *(("PUT", f"traits/{name}", None, 400, ["CUSTOM_A", "CUSTOM_B"]) for name in ("CUSTOM_a", "NOT_A_TRAIT")),
        # "Remove a trait from a node", "Remove all traits from a node"
        ("DELETE", "traits/CUSTOM_A", None, 204, ["CUSTOM_B"]),
        ("DELETE", "traits/CUSTOM_C", None, 404, ["CUSTOM_A", "CUSTOM_B"]),
        ("DELETE", "traits", None, 204, []),
    ],
)
@pytest.mark.usefixtures("node")
def test_traits_are_written(
    service: Service, method: str, path: str, body: Any, status: int, traits: list[str]
) -> None:
    answer = service.bare_metal.call(method, f"/v1/nodes/n/{path}", body)
    assert (answer.status_code, answer.content == b"") == (status, status == 204), answer.text
    assert service.bare_metal.get("/v1/nodes/n/traits").json == {"traits": traits}
    assert sorted(service.bare_metal.get("/v1/nodes/n").json["traits"]) == traits


def test_one_more_than_fifty_is_refused_and_the_added_one_has_a_location(service: Service, node: str) -> None:
    service.bare_metal.put("/v1/nodes/n/traits", {"traits": CUSTOM[:49]})
    added = service.bare_metal.put(f"/v1/nodes/{node}/traits/CUSTOM_A")
    assert added.headers["Location"].endswith(f"/v1/nodes/{node}/traits/CUSTOM_A")
    refused = service.bare_metal.put(f"/v1/nodes/{node}/traits/CUSTOM_B")
    assert (refused.status_code, "exceed the maximum number of traits" in fault(refused)) == (400, True)


# "New in API version 1.37"; before, Ironic takes "traits" for a field that is too new, and has no such methods.
def test_traits_before_1_37(service: Service, node: str) -> None:
    for method, path, status in [
        ("GET", "traits", 406),
        ("PUT", "traits", 405),
        ("DELETE", "traits", 404),
        ("PUT", "traits/CUSTOM_A", 405),
        ("DELETE", "traits/CUSTOM_A", 404),
    ]:
        answer = service.client("1.36").call(method, f"/v1/nodes/{node}/{path}")
        assert (answer.status_code, "1.37" in fault(answer)) == (status, True), (method, path)


def test_an_unknown_node_is_404(service: Service) -> None:
    assert service.bare_metal.put("/v1/nodes/nobody/traits", {"traits": []}).status_code == 404
    assert service.bare_metal.delete("/v1/nodes/nobody/traits/CUSTOM_A").status_code == 404


def test_traits_are_not_changed_by_a_patch(service: Service, node: str) -> None:
    answer = service.bare_metal.patch(f"/v1/nodes/{node}", {"op": "add", "path": "/traits", "value": ["CUSTOM_A"]})
    assert answer.status_code == 400
