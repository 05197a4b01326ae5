"""The routes table itself, and the tables that representations are made of."""

from __future__ import annotations

import msgspec

from ferroscope.api.baremetal import node_fields, node_input, port_fields
from ferroscope.api.http.openapi import document
from ferroscope.api.http.route import Body
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.api.routes import ROUTES
from ferroscope.core.model import Node, Port
from ferroscope_client.core.node import NodeAttributes
from tests.support.rows import each


def test_each_method_of_each_path_is_served_once() -> None:
    served = [(route.method, route.path) for route in ROUTES]
    assert len(set(served)) == len(served)


def test_each_route_has_a_body_if_and_only_if_it_describes_one() -> None:
    for route in ROUTES:
        assert route.since <= BARE_METAL.maximum[1]
        assert (route.body is None) is (route.body_kind is Body.NONE)


def test_statuses_without_a_body_document_none() -> None:
    for route in ROUTES:
        assert (route.response is None) or route.status != 204


def test_document_is_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(document(ROUTES)))["paths"]


@each("minor", [1, 8, 31, 95])
def test_whole_representations_fit_their_schema(minor: int) -> None:
    node = Node(uuid="1be26c0b-03f2-4d2e-ae87-c02d7f33c123", driver="sim", created_at=1.0)
    shown = node_fields.render(node, node_fields.select(minor, None), minor, "http://api")
    msgspec.json.decode(msgspec.json.encode(shown), type=node_fields.NodeView)
    port = Port(uuid=node.uuid, node=node.uuid, address="52:54:00:00:00:01", created_at=1.0)
    msgspec.json.decode(
        msgspec.json.encode(port_fields.render(port, port_fields.select(minor, None), "http://api")),
        type=port_fields.PortView,
    )


def test_whatever_can_be_set_is_shown_and_the_other_way_round() -> None:
    assert set(node_input.PATCHABLE) <= set(node_fields.BY_NAME)
    assert set(port_fields.PATCHABLE) - {"node_ident"} <= set(port_fields.BY_NAME)
    node = Node(uuid="u", driver="sim")
    assert set(node_input.settable(node)) == set(node_input.PATCHABLE)


def test_what_is_sorted_by_is_stored() -> None:
    assert set(node_fields.SORT_FIELDS.values()) <= {*Node.__struct_fields__, *NodeAttributes.__struct_fields__}
    assert set(port_fields.SORT_FIELDS.values()) <= {*Port.__struct_fields__, "is_smartnic"}
