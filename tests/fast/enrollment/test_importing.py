"""Which node a row of a file means, and which nodes it may change."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope_client.enrollment import importing, node_file
from ferroscope_client.enrollment.importing import ExistingFleet, RowError
from tests.support.rows import each

MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
UUID, UNNAMED = "5c9e46c0-4b0c-4a53-8b08-2c3c9c0b1f11", "5c9e46c0-4b0c-4a53-8b08-2c3c9c0b1f12"
NODES = [{"uuid": UUID, "name": "r1-u01"}, {"uuid": UNNAMED, "name": None}]
PORTS = [{"address": MAC, "node_uuid": UUID}, {"address": OTHER, "node_uuid": UNNAMED}]


def found(cells: dict[str, str], *, rename: bool = False) -> Any:
    (row,) = node_file.read(f"{','.join(cells)}\n{','.join(cells.values())}\n", "csv")
    return ExistingFleet(NODES, PORTS, rename=rename).find(row)


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
    with pytest.raises(RowError, match=f"MAC address {MAC} belongs to node r1-u01; .*{UUID}"):
        found(cells)
    assert found(cells, rename=True)["uuid"] == UUID


@each(
    ("lines", "reasons"),
    [
        (
            ["a,52:54:00:00:00:0a,", "a,,", "c,,"],
            {2: "the name a is also in line 3", 3: "the name a is also in line 2"},
        ),
        (["a,52:54:00:00:00:0a,", "b,5254.0000.000a,"], {2: "0a is also in line 3", 3: "0a is also in line 2"}),
        (["a,,192.0.2.1", "b,,https://192.0.2.1:443", "c,,192.0.2.1"], {2: "line 3", 3: "line 2", 4: "line 2"}),
        (["a,x,192.0.2.1", "b,,192.0.2.1", "c,,"], {2: "; the BMC 192.0.2.1 is also in line 3", 3: "in line 2"}),
        (
            ["r1-u01,,", f",{MAC},", f",{OTHER},"],
            {2: "the node r1-u01 is also in line 3", 3: "r1-u01 is also in line 2"},
        ),
        (["a,,192.0.2.1", "b,,192.0.2.300", "c,,192.0.2.300"], {3: "192.0.2.300", 4: "192.0.2.300"}),
    ],
)
def test_rows_that_contradict_each_other_are_all_wrong(lines: list[str], reasons: dict[int, str]) -> None:
    rows = node_file.read("\n".join(["name,macs,driver_info/redfish_address", *lines]), "csv")
    for row in rows:
        row.fields["driver"] = "redfish"
    importing.check_rows(ExistingFleet(NODES, PORTS), rows)
    assert {number for number, row in enumerate(rows, 2) if row.errors} == set(reasons)
    for number, reason in reasons.items():
        assert reason in rows[number - 2].problem
