"""The real servers, once for all tests, and the service of which a sync reads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest

from ferroscope.dcim.machines import Interface, Item, Machine
from ferroscope.dcim.rest import RestClient
from ferroscope.dcim.sync import Place, Sync
from ferroscope.dcim.writer import Report
from tests.integration.cli.conftest import listener, service, shell
from tests.support.dcim import ROLE, DcimServer, running
from tests.support.nautobot import Nautobot
from tests.support.netbox import NetBox
from tests.support.servers import Server

__all__ = ["listener", "service", "shell"]
_MODEL: Final = ("Dell Inc.", "PowerEdge R650")


class Synced:
    """A DCIM with a place for the test, and the syncs of machines into that."""

    def __init__(self, real: DcimServer) -> None:
        self.real = real
        self.place = real.add_place()
        self.switch = f"leaf-of-{self.place}"

    def sync(self, *machines: Machine, dry_run: bool = False, names: Iterable[str] = (), url: str = "") -> Report:
        """Run one; ``url`` is another address of the DCIM."""
        dialect = self.real.dialect
        client = RestClient(url or self.real.url, self.real.token, dialect, threading.Event(), seconds=60)
        client.check()
        place = Place(self.place, ROLE, dialect.default_status)
        return Sync(client, dialect, place, dry_run=dry_run).run(machines, [*names, *(one.name for one in machines)])

    def devices(self) -> dict[str, dict[str, Any]]:
        """Return those of the place."""
        dialect = self.real.dialect
        place = self.real.list(dialect.places, name=self.place)[0]["id"]
        return {one["name"]: one for one in self.real.list("dcim/devices", **{dialect.in_place: place})}

    def parts(self, path: str, device: str) -> dict[str, dict[str, Any]]:
        """Return by name the interfaces or the inventory items of a device."""
        ident = self.devices()[device]["id"]
        listed = self.real.list(f"dcim/{path}", **{self.real.dialect.of_device: ident})
        found = [one for one in listed if one["device"]["id"] == ident]
        named = {one["name"]: one for one in found}
        assert len(named) == len(found), found
        return named

    def macs(self, device: str) -> dict[str, list[str]]:
        """Return by interface its MAC addresses, the primary one first; each is an object of its own, or a field."""
        found = {}
        for name, one in self.parts("interfaces", device).items():
            others = [other["mac_address"].lower() for other in one.get("mac_addresses", ())]
            primary = (one["mac_address"] or "").lower()
            found[name] = [primary, *(mac for mac in others if mac != primary)]
        return found


def machine(name: str, number: int = 1, *, switch: str | None = None, **fields: Any) -> Machine:
    """Return a machine with two NICs, of which the first is at a port of the switch, a disk, and two DIMMs."""
    macs = [f"52:54:00:{number // 256:02x}:{number % 256:02x}:{nic:02x}" for nic in (0, 1)]
    given: dict[str, Any] = {
        "serial": f"SN-{name}",
        "interfaces": (
            Interface("eth0", macs[0], switch, f"Ethernet{number}" if switch else None), Interface("eth1", macs[1]),
        ),
        "items": (
            Item("/dev/sda", "PM1733", f"S4YN-{number}", "Samsung"),
            *(Item(slot, "M393A4K40DB3", f"D{number}-{slot}", "Samsung") for slot in ("A1", "B1")),
        ),
    }  # fmt: skip
    return Machine(name, *_MODEL, **(given | fields))


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(Nautobot, marks=pytest.mark.nautobot, id="nautobot"),
        pytest.param(NetBox, marks=pytest.mark.netbox, id="netbox"),
    ],
)
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_postgresql: Server
) -> Iterator[DcimServer]:
    kind = request.param
    with running(kind, tmp_path_factory.mktemp(kind.name), shared_postgresql) as made:
        yield made


@pytest.fixture
def dcim(real: DcimServer) -> Synced:
    return Synced(real)
