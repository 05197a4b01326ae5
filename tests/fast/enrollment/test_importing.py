"""Which node a row of a file means, and which nodes it may change."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.enrollment import node_file
from ferroscope.enrollment.importing import Fleet, RowError
from tests.support.rows import each

MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
UUID, UNNAMED = "5c9e46c0-4b0c-4a53-8b08-2c3c9c0b1f11", "5c9e46c0-4b0c-4a53-8b08-2c3c9c0b1f12"
NODES = [{"uuid": UUID, "name": "r1-u01"}, {"uuid": UNNAMED, "name": None}]
PORTS = [{"address": MAC, "node_uuid": UUID}, {"address": OTHER, "node_uuid": UNNAMED}]


def found(cells: dict[str, str], *, rename: bool = False) -> Any:
    (row,), _ = node_file.read(f"{','.join(cells)}\n{','.join(cells.values())}\n", "csv")
    return Fleet(NODES, PORTS, [row], rename=rename).find(row)


@each(
    ("cells", "node"),
    [
        ({"macs": MAC}, UUID),
        ({"name": "r1-u01", "macs": MAC}, UUID),
        ({"name": "r1-u02", "macs": OTHER}, UNNAMED),  # a machine of the inbox gets its name
        ({"name": "r1-u02", "macs": MAC, "uuid": UUID}, UUID),
    ],
)
def test_a_row_names_its_node(cells: dict[str, str], node: str) -> None:
    assert found(cells)["uuid"] == node


@each("more", [{}, {"uuid": "5c9e46c0-4b0c-4a53-8b08-2c3c9c0b1f13"}])
def test_a_new_name_with_the_mac_address_of_another_node_renames_on_request_only(more: dict[str, str]) -> None:
    """The MAC address is mistyped, or its cell copied, more often than a node is renamed."""
    cells = {"name": "r1-u02", "macs": MAC} | more
    with pytest.raises(RowError, match=f"MAC address {MAC} is that of node r1-u01; .*{UUID}"):
        found(cells)
    assert found(cells, rename=True)["uuid"] == UUID
