"""The interface of a DCIM that is meant by what LLDP says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferroscope.contrib.dcim.cables import CablePlan
from ferroscope.contrib.dcim.dialects import DIALECTS
from ferroscope.contrib.dcim.machines import DcimInterface
from ferroscope.contrib.dcim.writer import DcimWriter
from tests.support.rows import each

PORTS = [
    {"id": 1, "name": "ge-0/0/11", "mac_address": "00:05:33:AA:BB:11"},
    {"id": 2, "name": "Gi1/0/1", "mac_address": "00:05:33:AA:BB:12"},
    {"id": 3, "name": "Vlan1", "mac_address": "00:05:33:AA:BB:10"},
    {"id": 4, "name": "Vlan2", "mac_address": "00:05:33:AA:BB:10"},
    {"id": 5, "name": "Port 2", "mac_address": None},
]


class Dcim:
    """What the sync reads of a DCIM with one switch."""

    def list(self, path: str, **_query: Any) -> Iterator[dict[str, Any]]:
        return map(dict, [{"id": 9}] if path == "dcim/devices" else PORTS)


@each(
    ("port", "ident"),
    [
        ("Gi1/0/1", 2), ("ge-0/0/11.0", 1), ("00:05:33:aa:bb:12", 2), ("Port 2", 5),
        ("00:05:33:aa:bb:10", None), ("ge-0/0/11.1", None), ("528", None),
    ],
)  # fmt: skip
def test_an_interface_is_recognized_by_its_name_its_unit_or_its_mac_address(port: str, ident: int | None) -> None:
    """Switches send MAC addresses instead of names: https://github.com/netbox-community/netbox/issues/5818."""
    client: Any = Dcim()
    for dialect in DIALECTS:
        writer = DcimWriter(client, dry_run=True)
        cabling = CablePlan(client, dialect, writer)
        cabling.add("a1", DcimInterface("eth0", "52:54:00:00:00:01", "sw01", port), {"id": 7})
        cabling.finish()
        assert [one.after for one in writer.report.changes] == ([dialect.cable(7, ident)] if ident else [])
        assert [one.code for one in writer.report.left] == ([] if ident else ["unknown-port"])
