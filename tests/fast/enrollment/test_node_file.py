"""Files of nodes as spreadsheets of several countries write them."""

from __future__ import annotations

import pytest

from ferroscope.enrollment import node_file

ROWS = [
    ["name", "driver", "macs", "extra/rack"],
    ["r1-u01", "fake-hardware", "52:54:00:0a:01:07 52:54:00:0a:01:08", "A1, left; below"],
    ["r1-u02", "fake-hardware", "", "A2"],
]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("before", ["", "\ufeff"])
def test_columns_may_be_separated_by_commas_semicolons_or_tabs(delimiter: str, before: str) -> None:
    lines = (delimiter.join(f'"{cell}"' if cell.count(" ") else cell for cell in row) for row in ROWS)
    rows, errors = node_file.read(before + "\r\n".join(lines), "csv")
    assert errors == []
    assert [(row.fields["name"], row.macs) for row in rows] == [("r1-u01", ROWS[1][2].split()), ("r1-u02", [])]


def test_a_cell_too_many_says_what_to_quote() -> None:
    _, errors = node_file.read("name;driver\nn1;fake-hardware;x\n", "csv")
    assert errors == ["line 2: 3 cells, but 2 columns; quote cells with ';'"]


def test_one_column_is_a_file_too() -> None:
    rows, _ = node_file.read("name\nn1\n", "csv")
    assert [row.fields["name"] for row in rows] == ["n1"]
