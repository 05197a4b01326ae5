"""Every query that the pages show is understood, and finds machines of the shapes that real ramdisks send."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from ferroscope.hardware import expressions, search_index
from ferroscope.hardware.query import QueryError, parse
from ferroscope.hardware.search_index import IndexRow
from ferroscope_sim.inventory.body import document
from tests import ROOT
from tests.support import examples, misses

_DOCS: Final = ROOT / "docs"
_PAGES: Final = ("how-to/find-machines.md", "reference/search.md", "reference/cli.md")
_ROW: Final = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")
_COMMAND: Final = re.compile(r"^\$ ferroscope search (?:'([^']*)'|([^'\n]+))$", re.MULTILINE)
# What a ramdisk with the default collectors and pci-devices sends of a machine of another kind, shortened.
_OTHER: Final[dict[str, Any]] = {
    "inventory": {
        "interfaces": [
            {
                "name": "eno3", "mac_address": "24:6e:96:7e:24:a6", "has_carrier": True, "vendor": "0x14e4",
                "product": "0x165f", "speed_mbps": 25000,
                "lldp": [[1, "041c721da07177"], [2, "0565746865726e6574312f312f3234"], [5, "73772d31672d62683431"]],
            },
            {"name": "eno4", "mac_address": "24:6e:96:7e:24:a7", "has_carrier": False, "lldp": []},
        ],
        "cpu": {"model_name": "Neoverse-N1", "frequency": "3000.0000", "count": 80, "architecture": "aarch64"},
        "disks": [{"name": "/dev/sda", "size": 240057409536, "rotational": False, "serial": "S3BSNX0J800427"}],
        "memory": {"total": 269_000_000_000, "physical_mb": 262144},
        "system_vendor": {
            "product_name": "PowerEdge R740 (SKU=0715;ModelName=PowerEdge R740)",
            "serial_number": "9YPX7M2",
            "manufacturer": "Dell Inc.",
            "firmware": {"vendor": "Dell Inc.", "version": "2.22.2", "build_date": "09/12/2024"},
        },
        "boot": {"current_boot_mode": "uefi", "pxe_interface": "24:6e:96:7e:24:a6"},
    },
    "pci_devices": [
        {"vendor_id": "102b", "product_id": "0536", "class": "030000", "revision": "04", "bus": "0000:03:00.0"},
        {"vendor_id": "10de", "product_id": "20b7", "class": "030200", "revision": "a1", "bus": "0000:99:00.0"},
    ],
    "out_of_band": {
        "inventory": {"firmware": [{"component": "nic", "model": "ConnectX-5 EN", "version": "16.31.1014"}]},
        "health": {"parts": [{"component": "drive", "health": "warning", "problem": "failure predicted"}]},
    },
}  # fmt: skip


def _queries() -> Iterator[tuple[str, str]]:
    for page in _PAGES:
        text = (_DOCS / page).read_text(encoding="utf-8")
        for match in _COMMAND.finditer(text):
            yield page, match[1] or match[2]
        if page == "reference/cli.md":
            continue
        head = text.partition("## Fields")[0]
        for row in _ROW.findall(head):
            if any(mark in row for mark in ("==", ">=", "has ", "~", "!=", "in (", "bare word")):
                yield from ((page, code) for code in _CODE.findall(row) if " " in code or "bare word" in row)


@pytest.fixture(scope="module")
def machines() -> list[list[IndexRow]]:
    """Return what is known of simulated machines and of another one."""
    bodies = [document(index, size=40_000) for index in range(1, 121)] + [dict(_OTHER)]
    return [search_index.learn(body.pop("inventory"), body).rows for body in bodies]


def test_a_query_of_the_documentation_finds_something(machines: list[list[IndexRow]]) -> None:
    misses.none(
        f"docs/{page}: {query}: {wrong}"
        for page, query in sorted(set(_queries()))
        if (wrong := _finds_nothing(query, machines))
    )


def test_a_query_that_finds_nothing_is_found(machines: list[list[IndexRow]]) -> None:
    assert _finds_nothing("memory_gb >= 999999", machines)
    assert _finds_nothing("no_such_field > 1", machines)


def _finds_nothing(query: str, machines: list[list[IndexRow]]) -> str | None:
    try:
        asked = parse(query)
    except QueryError as exc:
        return str(exc)
    shown: dict[str, Any] = {"name": "rack3-u12", "labels": {"rack": "r1"}, "inbox": True}
    shown |= {"attributes": {"deviations": [{"condition": "has gpu"}]}}
    errors = (None, "no callback (timeout). Check PXE boot.", "HTTP 401 (bmc-credentials). Correct driver_info.")
    nodes = [
        examples.node(provision_state="available", inspection_finished_at=1.0, last_error=error, **shown)
        for error in errors
    ]
    found = any(expressions.matches(asked, known, node) for node in nodes for known in machines)
    return None if found else "it finds nothing"


def test_the_pages_have_queries() -> None:
    assert len(set(_queries())) > 15
