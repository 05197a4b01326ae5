"""A value of a part leads to the machines that have it, too; what is each machine's own leads nowhere."""

from __future__ import annotations

from typing import Any

from ferroscope.contrib.ui import alike
from ferroscope.hardware.parts import Part
from ferroscope.hardware.query import parse
from ferroscope_client.hardware.readings import Kind
from tests.support.rows import each

BIOS = {"component": "bios", "version": "2.1"}


@each(
    ("kind", "fields", "name", "expected"),
    [
        ("node", {"vendor": "Dell Inc."}, "vendor", "vendor == 'Dell Inc.'"),
        ("node", {"product": "R650"}, "product", "product == 'R650'"),
        ("node", {"product": "R650 (SKU=1)"}, "product", "(product == 'R650' or product ~ 'R650 (*')"),
        ("node", {"serial": "X"}, "serial", ""),
        ("nic", {"switch": "leaf'1"}, "switch", 'nic.switch == "leaf\'1"'),
        ("nic", {"switch": "a'\""}, "switch", ""),
        ("nic", {"mac": "02:00:00:00:00:01"}, "mac", ""),
        ("disk", {"model": "P41"}, "model", "disk.model == 'P41'"),
        ("firmware", BIOS, "version", "firmware[component == 'bios' and version == '2.1']"),
        ("firmware", {"version": "2.1"}, "version", ""),
        ("health", {"state": "ok"}, "state", ""),
    ],
)  # fmt: skip
def test_a_value_and_its_search(kind: Kind, fields: dict[str, Any], name: str, expected: str) -> None:
    found = alike.part(Part(kind=kind, fields=fields), name)
    assert found == expected
    if found:
        parse(found)
        parse(alike.narrow_search("a or b", found))
