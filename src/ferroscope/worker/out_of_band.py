"""Out-of-band inspection: NICs and hardware as the BMC reports them, without a ramdisk.

NICs become ports before the first boot, so that the PXE filter and the lookup know the machine. The hardware is either
processed as an inspection, or kept beside the inventory that the ramdisk sends.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ferroscope.contracts.bmc import ListsNics, OutOfBand, OutOfBandNic, ReportsHealth
from ferroscope.contracts.data import Packed, Part, packed
from ferroscope.contracts.errors import BmcError, ConflictError
from ferroscope.core import json_safety
from ferroscope.core.delivery import Next, Outcome
from ferroscope.core.model import Document, Port, Severity
from ferroscope.core.notification import iso
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.db.transaction import Transaction
from ferroscope.hardware.parts import mapping, mappings, text
from ferroscope.hardware.sources import combine
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.services import Services

# Keys in an inspection's plugin data.
KEY: Final = "out_of_band"
HARDWARE: Final = "hardware"
_READ: Final = "read out of band"
# Parts that could not be read, which a note lists.
_MAX_SHOWN: Final = 5


def inspect(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Read the hardware and pass it to the hooks as if a ramdisk had sent it."""
    inventory = _inventory(attempt, journal)
    inventory.setdefault("interfaces", [])  # some BMCs know none; hooks decide whether that is enough
    health = _health(attempt, journal, inventory)
    sent: dict[Part, bytes] = {"inventory": msgspec.json.encode(inventory), "unprocessed": b"{}"}
    attempt.parts = packed(sent) | _pack_report(attempt, services, inventory, health)
    parts = ", ".join(sorted(inventory))
    journal.note("out of band", f"the BMC reported: {parts}")
    return Next(Event.CONTINUE)


def prepare(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Before the ramdisk boots: create ports for the NICs that the BMC reports, and keep its hardware inventory.

    Neither is required for the inspection, so a failure of the BMC is only noted.
    """
    settings, driver = services.settings.inspector, attempt.driver()
    collects = settings.collect_out_of_band and isinstance(driver, OutOfBand)
    lister = driver if settings.pre_create_ports and isinstance(driver, ListsNics) else None
    if attempt.has_intended(_READ) or not (collects or lister):
        return
    parts: dict[Part, Packed] = {}
    try:
        if collects:
            inventory = _inventory(attempt, journal)
            parts = _pack_report(attempt, services, inventory, _health(attempt, journal, inventory))
            journal.note("out of band", f"the BMC reported: {', '.join(sorted(inventory))}")
        if lister is not None:
            _create_ports(attempt, journal, services, [nic for nic in lister.nics(attempt.node) if nic.enabled])
    except BmcError as exc:
        message = f"could not read the hardware inventory from the BMC: {exc}"
        journal.note("out of band", message, severity=Severity.WARNING, reason=exc.reason)
    # Stored immediately: an attempt that is throttled and retried must not ask the BMC again.
    attempt.intend(_READ, journal, lambda tx: _save(tx, attempt, parts))


def _inventory(attempt: Attempt, journal: Journal) -> Document:
    """Return what the BMC reports; what could not be read of it is noted."""
    inventory = _driver(attempt).inventory(attempt.node)
    if unread := inventory.pop("unread", None):
        message = f"some parts of the BMC's inventory could not be read: {'; '.join(map(str, unread[:_MAX_SHOWN]))}"
        journal.note("out of band", message, severity=Severity.WARNING, reason=Reason.BMC_REFUSED)
    return inventory


def _save(tx: Transaction, attempt: Attempt, parts: dict[Part, Packed]) -> None:
    if parts and attempt.node.inspection:
        tx.data.save(attempt.node.inspection, attempt.node.uuid, parts)


def stored_document(parts: Mapping[Any, bytes]) -> Document | None:
    """Return what is stored of the BMC, perhaps with its health; None if nothing is."""
    raw = parts.get("out_of_band")
    return json_safety.decode(raw) if raw else None


def is_all(inventory: Document, kept: Document | None) -> bool:
    """Whether the inventory is that of the BMC, so that no ramdisk was involved."""
    return kept is not None and inventory == kept["inventory"]


def beside(inventory: Document, kept: Document) -> Document:
    """Combine both inventories, with the source of each value."""
    in_band = {} if is_all(inventory, kept) else inventory
    hardware: Document = msgspec.to_builtins(combine(in_band, kept["inventory"], str(kept["source"])))
    return hardware


def keep_health(attempt: Attempt, journal: Journal, inventory: Document, plugin_data: Document) -> Document:
    """Return what an earlier inspection has read of health and firmware, for one in which the BMC was not asked.

    As plugin data; empty if nothing is known of this machine. What the ramdisk has found of firmware is newer.
    """
    known_hardware = attempt.before.hardware
    if "health" not in known_hardware and not any(
        part.get("component") == "bmc" for part in known_hardware.get("components", ())
    ):
        return {}
    earlier = attempt.previous_data(journal, ("inventory", "plugin_data"), "so the reported health is lost")
    bmc_data = mapping(earlier.get("plugin_data", {}).get(KEY))
    if not bmc_data or len({_serial(earlier["inventory"]), _serial(inventory)} - {None}) > 1:
        return {}  # the node has another machine now
    extra = mapping(plugin_data.get("extra"))
    newer = {component for component, table in (("nic", "network"), ("disk", "disk")) if extra.get(table)}
    firmware = [
        part
        for part in mappings(mapping(bmc_data.get("inventory")).get("firmware"))
        if part.get("component") not in newer
    ]
    report = {name: bmc_data[name] for name in ("source", "read_at", "health") if name in bmc_data}
    return {KEY: report | {"kept": True, "inventory": {"firmware": firmware} if firmware else {}}}


def _serial(inventory: Document) -> str | None:
    return text(mapping(inventory.get("system_vendor")).get("serial_number"))


def _driver(attempt: Attempt) -> OutOfBand:
    driver = attempt.driver()
    if not isinstance(driver, OutOfBand):
        raise BmcError(
            f"driver {attempt.node.driver!r} does not support out-of-band inspection",
            transient=False,
            reason=Reason.DRIVER_INFO_INVALID,
        )
    return driver


def _health(attempt: Attempt, journal: Journal, inventory: Document) -> Document:
    """Return the health of the machine, and add the versions of its firmware to the inventory; a failure is noted."""
    driver = attempt.driver()
    if not isinstance(driver, ReportsHealth):
        return {}
    try:
        report = driver.health(attempt.node)
    except BmcError as exc:
        message = f"could not read the health from the BMC: {exc}"
        journal.note("out of band", message, severity=Severity.WARNING, reason=exc.reason)
        return {}
    if report.get("firmware"):
        inventory["firmware"] = report["firmware"]
    health: Document = report.get("health") or {}
    if health and not health.get("complete"):
        journal.note("out of band", "the BMC did not answer in time: its health and firmware report is incomplete")
    return health


def _pack_report(attempt: Attempt, services: Services, inventory: Document, health: Document) -> dict[Part, Packed]:
    report = {"source": attempt.node.driver, "read_at": iso(services.clock.time()), "inventory": inventory}
    return packed({"out_of_band": msgspec.json.encode(report | ({"health": health} if health else {}))})


def _create_ports(attempt: Attempt, journal: Journal, services: Services, nics: list[OutOfBandNic]) -> None:
    """Create the missing ports immediately: the machine is about to boot."""
    own_macs, ignored = {port.address for port in attempt.ports}, services.settings.inspector.ignored
    nics = [nic for nic in nics if nic.mac not in ignored]
    elsewhere = attempt.ports_elsewhere([nic.mac for nic in nics if nic.mac not in own_macs])
    missing = [
        Port(uuid=str(uuid.uuid4()), node=attempt.node.uuid, address=nic.mac)
        for nic in nics
        if nic.mac not in own_macs and nic.mac not in elsewhere
    ]
    for address, node in elsewhere.items():
        message = f"the BMC reports NIC {address}, which is a port of node {node}"
        journal.note("ports", message, severity=Severity.WARNING, reason=Reason.PORT_CONFLICT)
    if not missing:
        return
    try:
        attempt.write(lambda tx: tx.ports.add(missing))
        attempt.ports.extend(missing)
    except ConflictError as exc:
        journal.note("ports", f"no ports created: {exc}", severity=Severity.WARNING, reason=Reason.PORT_CONFLICT)
        return
    journal.note("ports", f"created from the NICs that the BMC reports: {', '.join(port.address for port in missing)}")
