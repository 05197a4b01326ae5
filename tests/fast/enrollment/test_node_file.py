"""Files of nodes as spreadsheets of several countries write them."""

from __future__ import annotations

import csv
import io

import pytest

from ferroscope_client.enrollment import node_file
from tests.support.rows import each

ROWS = [
    ["name", "driver", "macs", "extra/rack"],
    ["r1-u01", "fake-hardware", "52:54:00:0a:01:07 52:54:00:0a:01:08", "A1, left; below"],
    ["r1-u02", "fake-hardware", "", "A2"],
]


@each("delimiter", [",", ";", "\t", "|"])
@each("before", ["", "\ufeff", "\n\n", "# exported; yesterday, by hand\n"])
def test_columns_may_be_separated_by_commas_semicolons_tabs_or_bars(delimiter: str, before: str) -> None:
    """Reports: https://github.com/netbox-community/netbox/issues/11928 (a byte order mark),
    https://github.com/grokability/snipe-it/issues/15542 (semicolons).
    """
    lines = (delimiter.join(f'"{cell}"' if cell.count(" ") else cell for cell in row) for row in ROWS)
    rows = node_file.read(before + "\r\n".join(lines), "csv")
    assert not any(row.errors for row in rows)
    assert [(row.fields["name"], row.macs) for row in rows] == [("r1-u01", ROWS[1][2].split()), ("r1-u02", [])]


def test_a_cell_too_many_says_what_to_quote() -> None:
    (row,) = node_file.read("name;driver\nn1;fake-hardware;x\n", "csv")
    assert row.where == "line 2"
    assert row.errors == ["3 cells, but 2 columns; quote cells with ';', and take those at the end away"]


@each(
    ("header", "row", "errors"),
    [
        ("name;driver;;;", "n1;sim;;", []),
        ("name;driver;;;", "n1;sim", []),
        ("name;;driver", "n1;;sim", []),
        (";name;driver", ";n1;sim", []),
        ("name;;driver", "n1;A1;sim", ["'A1' is in column 2, which has no name; quote cells with ';'"]),
        ("name;driver;;", "n1;sim;;A1", ["'A1' is in column 4, which has no name; quote cells with ';'"]),
    ],
)
def test_separators_of_empty_cells_and_columns_cost_nothing(header: str, row: str, errors: list[str]) -> None:
    (read,) = node_file.read(f"{header}\n{row}\n;;;;\n", "csv")
    assert read.errors == errors
    assert read.fields == {"name": "n1", "driver": "sim"}


@each(
    "cell",
    [
        "52:54:00:0a:01:07", "52-54-00-0A-01-07", "5254.000a.0107", "5254-000A-0107", "525400-0a0107", "5254000A0107",
        "525400:0a0107", "52 54 00 0a 01 07", "0x5254000a0107", "52.54.00.0a.01.07",
    ],
)  # fmt: skip
def test_mac_addresses_are_read_as_switches_and_asset_lists_write_them(cell: str) -> None:
    """Asset lists write them without any sign.

    Reports: https://github.com/inverse-inc/packetfence/issues/5005, https://github.com/grokability/snipe-it/issues/10716,
    https://github.com/inverse-inc/packetfence/issues/4602.
    """
    for text in (cell, f"{cell}|{cell}", f"{cell} / {cell}\n"):
        (row,) = node_file.read(f'name;macs\nn1;"{text}"\n', "csv")
        assert (row.macs, row.errors) == (["52:54:00:0a:01:07"], [])


@each(
    ("kind", "text", "why"),
    [
        ("csv", "macs\n5.254E+11\n", "; a spreadsheet has made a number of it: format the column as text"),
        ("csv", "macs\n1422012345\n", "; a spreadsheet has made a number of it: format the column as text"),
        ("csv", "macs\n5254.000a\n", ""),
        ("yaml", "- macs: 11:22:33:44:55:10\n", "; in YAML, quote it"),
        ("json", '[{"macs": 1422012345}]', ""),
    ],
)
def test_a_mac_address_that_became_a_number_is_explained(kind: str, text: str, why: str) -> None:
    (row,) = node_file.read(text, kind)
    assert row.errors[0].partition("'")[2].partition("'")[2] == why


@each("mac", ["ff:ff:ff:ff:ff:ff", "01-00-5E-00-00-01", "00-00-00-00-00-00"])
def test_a_mac_address_that_no_nic_has_is_refused_and_names_no_node(mac: str) -> None:
    (row,) = node_file.read(f"macs\n{mac}\n", "csv")
    assert (row.errors, row.macs, row.label) == ([f"no NIC has the MAC address {mac!r}"], [], "")


def test_one_column_is_a_file_too() -> None:
    (row,) = node_file.read("name\nn1\n", "csv")
    assert row.fields["name"] == "n1"


def test_an_unknown_column_is_refused_with_where_its_values_could_go() -> None:
    with pytest.raises(node_file.NodeFileError, match="unknown column 'rack'; use labels/rack or extra/rack"):
        node_file.read("name,rack\nn1,r1\n", "csv")


def test_unknown_columns_become_labels_on_request() -> None:
    (row,) = node_file.read("name,Rack Row,extra/x\nn1,r1,y\n", "csv", unknown_as_labels=True)
    assert row.errors == []
    assert row.fields == {"name": "n1", "labels": {"rack-row": "r1"}, "extra": {"x": "y"}}


@each("value", ["=1+1", "'=1", "''=1", "-2+3", "@a", "+x", "'plain", "it's", "-5", "a=b", 7, -7, True])
def test_an_exported_cell_is_no_formula_and_is_imported_as_it_was(value: object) -> None:
    node = {"name": "r1", "uuid": "u", "driver": "fake-hardware", "extra": {"rack": value}}
    found = node_file.format_nodes([node], lambda _: [], "csv")
    (row,) = csv.DictReader(io.StringIO(found))
    cell = row["extra/rack"]
    assert cell[0] not in "=+@"
    assert cell[0] != "-" or cell[1:].isdigit()
    (back,) = node_file.read(found, "csv")
    assert back.errors == []
    assert back.fields["extra"]["rack"] == node_file.text(value)


def test_a_password_is_read_as_it_is() -> None:
    (row,) = node_file.read("name,bmc_password\nr1,'=secret\n", "csv")
    assert row.bmc["bmc_password"] == "'=secret"


@each("first", ["sep=;\r\n", "\ufeffSEP=;\n", '"sep=|"\n', "sep=|\n"])
def test_the_line_that_tells_excel_the_separator_is_no_header(first: str) -> None:
    lines = [["name", "driver"], ["n1", "fake-hardware", "x"]]
    text = first + "\n".join((";" if ";" in first else "|").join(line) for line in lines)
    (row,) = node_file.read(text, "csv")
    assert row.where == "line 3"
    assert row.errors[0].startswith("3 cells, but 2 columns")


@each(("given", "meant"), [("mac_address", "macs"), ("MAC", "macs"), ("address", "bmc_address")])
def test_a_column_of_another_name_is_recognized(given: str, meant: str) -> None:
    with pytest.raises(node_file.NodeFileError, match=f"unknown column '{given}'; did you mean {meant}?"):
        node_file.read(f"name,driver,{given}\n", "csv")
