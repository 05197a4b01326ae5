"""The summary of an inventory says what is there, and survives what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope_client.cli import text as pci
from ferroscope_client.cli.node import columns
from ferroscope_client.cli.output import console
from tests.support.rows import each

INVENTORY: dict[str, Any] = {
    "interfaces": [
        {"name": "eno1", "mac_address": "52:54:00:00:00:01", "ipv4_address": "192.0.2.7", "has_carrier": True,
         "speed_mbps": 25000, "vendor": "0x8086", "product": "0x159b"},
        {"name": "eno2", "mac_address": "52:54:00:00:00:02", "ipv6_address": "fe80::1%eno2", "has_carrier": False},
    ],
    "disks": [{"name": "/dev/sda", "size": 480103981056, "rotational": False, "model": "SSD", "serial": "S1"}],
    "cpu": {"count": 32, "model_name": "AMD EPYC 9124", "architecture": "x86_64"},
    "memory": {"physical_mb": 196608},
    "bmc_address": "10.0.0.5",
    "system_vendor": {"manufacturer": "Acme", "product_name": "R1", "serial_number": "X1"},
    "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:00:00:01"},
}  # fmt: skip


_PCI_IDS = """\
# a comment
8086  Acme Networks
\t1563  Slow 1G
\t159b  Speedy 25G
\t\t159b 0001  a subsystem
9999  Another Maker
\t1111  A Thing
"""


@pytest.fixture(autouse=True)
def pci_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the names be those of a file of ours, whatever the host has."""
    file = tmp_path / "pci.ids"
    file.write_text(_PCI_IDS)
    monkeypatch.setenv("FERROSCOPE_PCI_IDS", str(file))
    pci._names.cache_clear()
    yield
    pci._names.cache_clear()


@each(
    ("vendor", "product", "shown"),
    [
        ("0x8086", "0x159B", "Acme Networks Speedy 25G"),
        ("8086", "1111", "Acme Networks 1111"),
        ("9999", "0x1111", "Another Maker A Thing"),
        ("0x15b3", "0x1017", "mellanox 0x1017"),
        ("0xabcd", None, "0xabcd"),
        (None, "0x1017", None),
    ],
)
def test_pci_devices_have_names_where_these_are_known(vendor: str, product: str | None, shown: str | None) -> None:
    assert pci.name(vendor, product) == shown


def test_nics_and_disks_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    columns.draw(console(), INVENTORY)
    lines = capsys.readouterr().out.splitlines()
    assert "eno1  52:54:00:00:00:01  yes   192.0.2.7  yes      25 Gb/s  Acme Networks Speedy 25G" in lines
    assert "eno2  52:54:00:00:00:02        -          no       -        -" in lines
    assert "/dev/sda  480 GB  solid state  SSD    S1" in lines


@pytest.mark.parametrize(
    "inventory",
    [
        {},
        5,
        None,
        {"system_vendor": [1], "boot": "x", "memory": "x", "cpu": 1, "disks": 5, "interfaces": "eno1"},
        {"system_vendor": {"firmware": "x", "serial_number": {}}, "memory": {"physical_mb": "much"}},
        {"cpu": None, "memory": {}, "interfaces": None, "disks": [None, 1], "boot": {"pxe_interface": None}},
    ],
)
def test_whatever_is_missing_or_of_another_kind_is_left_out(inventory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    columns.draw(console(), inventory)
    assert capsys.readouterr().out.strip() == ""


@each(
    ("number", "text"),
    [
        (0, None),
        (True, None),
        ("many", None),
        (10**400, None),
        (512, "512 B"),
        (480103981056, "480 GB"),
        (3.84e12, "3.84 TB"),
    ],
)
def test_sizes_are_shown_as_disks_are_sold(number: Any, text: str | None) -> None:
    assert columns.size(number) == text


@each(("megabytes", "text"), [(1536, "1.5 GiB"), (262144, "256 GiB"), (12582912, "12,288 GiB"), (0, None)])
def test_memory_is_shown_as_it_is_sold(megabytes: int, text: str | None) -> None:
    assert columns.machine_summary({"memory": {"physical_mb": megabytes}})["Memory"] == text


def test_nics_and_disks_of_any_shape_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    odd = [{"name": [], "mac_address": 5, "speed_mbps": "fast", "ipv4_address": {}, "has_carrier": "perhaps"}]
    columns.draw(console(), {"interfaces": odd, "disks": [{"name": 1, "size": 10**400, "rotational": "no"}]})
    assert capsys.readouterr().out.count("\n") == 6


def test_a_bmc_without_an_address_has_none_and_long_words_are_cut() -> None:
    found = columns.machine_summary(
        {"bmc_address": "10.0.0.2", "bmc_v6address": "::/0", "system_vendor": {"product_name": "x" * 3000}}
    )
    assert found["BMC"] == "10.0.0.2"
    assert found["Machine"] == "x" * 57 + "..."
