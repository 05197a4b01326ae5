"""The exporters of tables: what is in a row, what hostile machines put into it, and how much memory a fleet takes."""

from __future__ import annotations

import csv
import io
import json
import sys
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet
import pytest

from ferroscope.contracts.plugins import Exporter, ExportError, ExportOptions
from ferroscope.contrib.dcim.exporters import loader
from tests.support.rows import each

NODE = {
    "uuid": "5b1a0d5c-3f26-4a3e-9f0e-5a1d1b7f9a01",
    "name": "rack1-u07",
    "provision_state": "available",
    "power_state": "power off",
    "maintenance": False,
    "maintenance_reason": None,
    "driver": "redfish",
    "owner": "ops",
    "resource_class": "large",
    "description": None,
    "labels": {"rack": "r1", "spare": ""},
    "hardware": {"vendor": "Dell", "serial": "9YPX7M2", "cpus": 64, "memory": 2**39, "storage": 10**12, "disks": 2},
    "created_at": "2026-01-02T03:04:05+00:00",
    "inspection_finished_at": None,
    "last_error": None,
}
TABLES = ("csv", "json", "parquet")


def load(name: str) -> Exporter:
    return loader.load(name, ExportOptions())


def written(name: str, nodes: Iterable[dict[str, Any]]) -> bytes:
    output = io.BytesIO()
    load(name).write(nodes, output)
    return output.getvalue()


def in_csv(*nodes: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(written("csv", nodes).decode(), newline="")))


def test_a_row_has_the_node_and_the_summary_of_its_hardware() -> None:
    (row,) = in_csv(NODE)
    expected = {"name": "rack1-u07", "state": "available", "maintenance": "false", "labels": "rack=r1,spare",
                "serial": "9YPX7M2", "memory_bytes": str(2**39), "gpus": "", "error": ""}  # fmt: skip
    assert expected.items() <= row.items()
    (found,) = json.loads(written("json", [NODE]))
    assert list(found) == list(row)
    assert (found["maintenance"], found["labels"], found["cpus"]) == (False, NODE["labels"], 64)


def test_parquet_has_types() -> None:
    nodes = ({**NODE, "name": f"n{number}"} for number in range(2500))
    table = pyarrow.parquet.read_table(io.BytesIO(written("parquet", nodes)))
    assert table.num_rows == 2500
    row = table.slice(2499).to_pylist()[0]
    assert (row["name"], row["memory_bytes"], row["maintenance"]) == ("n2499", 2**39, False)
    assert row["created"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert dict(row["labels"]) == NODE["labels"]
    assert row["inspected"] is None


@each("start", ["=", "+", "-", "@", "\t", "\n"])
def test_no_value_of_a_machine_is_a_formula(start: str) -> None:
    text = f'{start}HYPERLINK("http://192.0.2.1","x")'
    (row,) = in_csv({**NODE, "hardware": {"serial": text}, "last_error": text})
    assert (row["serial"], row["error"]) == (f"'{text}", f"'{text}")


def test_a_value_with_separators_stays_in_its_cell() -> None:
    rows = in_csv({**NODE, "hardware": {"serial": 'a","b\n=1\r\n', "vendor": "\ud800"}}, NODE)
    assert [row["serial"] for row in rows] == [
        'a","b\n\'=1\\x0d\n',
        "9YPX7M2",
    ]  # where a semicolon separates, that is a line
    assert {len(row) for row in rows} == {len(in_csv(NODE)[0])}


def test_what_the_caller_may_not_see_is_empty() -> None:
    (row,) = in_csv({**NODE, "hardware": {"content": "** Redacted **"}})
    assert (row["name"], row["serial"], row["cpus"]) == ("rack1-u07", "", "")
    (row,) = in_csv({**NODE, "hardware": None, "labels": None})
    assert (row["vendor"], row["labels"]) == ("", "")


@each("name", TABLES)
def test_a_fleet_of_none_is_a_valid_file(name: str) -> None:
    content = written(name, [])
    rows = {"csv": in_csv, "json": lambda: json.loads(content),
            "parquet": lambda: pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()}  # fmt: skip
    assert rows[name]() == []


@each("name", TABLES)
def test_thousands_of_machines_take_no_more_memory_than_a_few(name: str) -> None:
    class Nowhere(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return len(data)

    def fleet() -> Iterator[dict[str, Any]]:
        for number in range(6_000):
            yield {**NODE, "name": f"n{number}", "last_error": "x" * 1000}

    written(name, [NODE])
    tracemalloc.start()
    load(name).write(fleet(), io.BufferedWriter(Nowhere()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportError) as caught:
        written("parquet", [NODE])
    assert "[all]" in caught.value.advice


class Point:
    """An entry point of another package."""

    def __init__(self, factory: Any, value: str = "other:Exporter") -> None:
        self.name, self.value, self._factory = "other", value, factory

    def load(self) -> Any:
        return self._factory


def test_exporters_that_cannot_be_used_are_refused() -> None:
    options = ExportOptions(parameters={"colour": "red"})
    for name in ("unheard-of", *TABLES):
        with pytest.raises(ValueError, match="unknown"):
            loader.load(name, options)
    for broken in (lambda _: 1 / 0, lambda _: object()):
        with pytest.raises(ExportError, match="other:Exporter"):
            loader.load("other", options, [Point(broken)])
    with pytest.raises(ExportError, match="several"):
        loader.load("other", options, [Point(object), Point(object, "another:Exporter")])
