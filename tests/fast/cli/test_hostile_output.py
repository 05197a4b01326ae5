"""No output has control or invisible characters of what machines say: on a terminal, in a file, in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml

from ferroscope.contracts.plugins import ExportOptions
from ferroscope.contrib.dcim.exporters import loader
from ferroscope_client.cli import lookup
from ferroscope_client.cli.output import Output, console
from ferroscope_client.core.values import clean
from ferroscope_client.enrollment import node_file
from tests.support.rows import each

HOSTILE = "a\x1b]0;owned\x07\x9b2J\u202e\u2066b\u200b\x7f\r\U000e0041end ä"
DATA = [{"name": "n1", "extra": {HOSTILE: [HOSTILE]}, "description": HOSTILE}]
NODE: dict[str, Any] = {
    "uuid": "5b1a0d5c-3f26-4a3e-9f0e-5a1d1b7f9a01",
    "name": "n1",
    "provision_state": "available",
    "description": HOSTILE,
    "labels": {"rack": "r1"},
    "extra": {HOSTILE: HOSTILE},
    "driver_info": {"redfish_address": "192.0.2.1"},
    "hardware": {"vendor": HOSTILE, "serial": HOSTILE, "ip": "192.0.2.2"},
}


LOADERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}


def is_clean(text: str) -> bool:
    return clean(text) == text


@pytest.mark.parametrize("fmt", ["json", "yaml", "jsonpath={.items[*].description}", "table"])
def test_no_format_of_a_command_shows_them(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    out = Output(fmt)
    out.show(DATA, lambda screen: screen.print(f"description: {HOSTILE}"))
    out.say(HOSTILE)
    console(error=True).print(HOSTILE)
    written = capsys.readouterr()
    assert is_clean(written.out)
    assert is_clean(written.err)
    assert "end " in written.out
    if fmt in LOADERS:
        assert LOADERS[fmt](written.out) == DATA


def test_no_csv_of_a_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    Output("csv").rows(("NAME", "EXTRA"), [(HOSTILE, {"a": HOSTILE})])
    assert is_clean(capsys.readouterr().out)


@each("fmt", sorted(loader.names()))
def test_no_export_has_them(fmt: str) -> None:
    output = io.BytesIO()
    loader.load(fmt, ExportOptions()).write([NODE], output)
    if fmt == "parquet":
        (row,) = pyarrow.parquet.read_table(io.BytesIO(output.getvalue())).to_pylist()
        assert row["vendor"] == clean(HOSTILE)
        return
    text = output.getvalue().decode()
    assert is_clean(text)
    if fmt == "csv":
        (row,) = csv.DictReader(io.StringIO(text, newline=""))
        assert row["vendor"] == clean(HOSTILE)
    else:
        assert HOSTILE in list(_texts(json.loads(text)))


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        yield value


@each("fmt", ["csv", "json", "yaml"])
def test_no_file_of_nodes_has_them(fmt: str) -> None:
    text = node_file.format_nodes([NODE], lambda _uuid: [], fmt)
    assert is_clean(text)
    if fmt in LOADERS:
        (node,) = LOADERS[fmt](text)["nodes"]
        assert (node["description"], node["extra"]) == (HOSTILE, {HOSTILE: HOSTILE})


def test_no_saved_inventory_has_them(tmp_path: Path) -> None:
    lookup.save({"inventory": DATA}, tmp_path / "file", Output("json"))
    text = (tmp_path / "file").read_text(encoding="utf-8")
    assert is_clean(text)
    assert json.loads(text) == {"inventory": DATA}
