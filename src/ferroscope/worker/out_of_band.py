"""Out-of-band inspection: NICs and hardware as the BMC reports them, without a ramdisk.

NICs become ports before the first boot, so that the PXE filter and the lookup know the machine. The hardware is either
processed as an inspection, or kept beside the inventory that the ramdisk sends.
"""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from ferroscope.contracts.bmc import ListsNics, OutOfBand, OutOfBandNic, ReportsHealth
from ferroscope.contracts.errors import BmcError, ConflictError
from ferroscope.contracts.store import Packed, Part, packed
from ferroscope.core.delivery import Next, Outcome
from ferroscope.core.model import Document, Port
from ferroscope.core.notification import iso
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.worker.attempt import Attempt
from ferroscope_client.core.reasons import Reason

_READ: Final = "read out of band"
# Parts that could not be read, which a note lists.
_MAX_SHOWN: Final = 5


def inspect(attempt: Attempt) -> Outcome:
    """Read the hardware and pass it to the hooks as if a ramdisk had sent it."""
    inventory = _inventory(attempt)
    inventory.setdefault("interfaces", [])  # some BMCs know none; hooks decide whether that is enough
    health = _health(attempt, inventory)
    sent: dict[Part, bytes] = {"inventory": msgspec.json.encode(inventory), "unprocessed": b"{}"}
    attempt.parts = packed(sent) | _pack_report(attempt, inventory, health)
    attempt.note("out of band", f"the BMC reported: {', '.join(sorted(inventory))}")
    return Next(Event.CONTINUE)


def prepare(attempt: Attempt, lister: ListsNics | None, *, collects: bool) -> None:
    """Before the ramdisk boots: create ports for the NICs that ``lister`` reports; ``collects``: keep the inventory.

    Neither is required for the inspection, so a failure of the BMC is only noted.
    """
    if attempt.has_intended(_READ):
        return
    parts: dict[Part, Packed] = {}
    try:
        if collects:
            inventory = _inventory(attempt)
            parts = _pack_report(attempt, inventory, _health(attempt, inventory))
            attempt.note("out of band", f"the BMC reported: {', '.join(sorted(inventory))}")
        if lister is not None:
            _create_ports(attempt, [nic for nic in lister.nics(attempt.node) if nic.enabled])
    except BmcError as exc:
        attempt.warn("out of band", f"could not read the hardware inventory from the BMC: {exc}", reason=exc.reason)
    # Stored immediately: an attempt that is throttled and retried must not ask the BMC again.
    attempt.intend(_READ, lambda tx: _save(tx, attempt, parts))


def _inventory(attempt: Attempt) -> Document:
    """Return what the BMC reports; what could not be read of it is noted."""
    inventory = _driver(attempt).inventory(attempt.node)
    if unread := inventory.pop("unread", None):
        message = f"some parts of the BMC's inventory could not be read: {'; '.join(map(str, unread[:_MAX_SHOWN]))}"
        attempt.warn("out of band", message, reason=Reason.BMC_REFUSED)
    return inventory


def _save(tx: Transaction, attempt: Attempt, parts: dict[Part, Packed]) -> None:
    if parts and attempt.node.inspection:
        tx.data.save(attempt.node.inspection, attempt.node.uuid, parts)


def _driver(attempt: Attempt) -> OutOfBand:
    driver = attempt.driver()
    if not isinstance(driver, OutOfBand):
        raise BmcError(
            f"driver {attempt.node.driver!r} does not support out-of-band inspection",
            transient=False,
            reason=Reason.DRIVER_INFO_INVALID,
        )
    return driver


def _health(attempt: Attempt, inventory: Document) -> Document:
    """Return the health of the machine, and add the versions of its firmware to the inventory; a failure is noted."""
    driver = attempt.driver()
    if not isinstance(driver, ReportsHealth):
        return {}
    try:
        report = driver.health(attempt.node)
    except BmcError as exc:
        attempt.warn("out of band", f"could not read the health from the BMC: {exc}", reason=exc.reason)
        return {}
    if report.get("firmware"):
        inventory["firmware"] = report["firmware"]
    health: Document = report.get("health") or {}
    if health and not health.get("complete"):
        attempt.note("out of band", "the BMC did not answer in time: its health and firmware report is incomplete")
    return health


def _pack_report(attempt: Attempt, inventory: Document, health: Document) -> dict[Part, Packed]:
    report = {"source": attempt.node.driver, "read_at": iso(attempt.clock.time()), "inventory": inventory}
    return packed({"out_of_band": msgspec.json.encode(report | ({"health": health} if health else {}))})


def _create_ports(attempt: Attempt, nics: list[OutOfBandNic]) -> None:
    """Create the missing ports immediately: the machine is about to boot."""
    own_macs, ignored = {port.address for port in attempt.ports}, attempt.settings.inspector.ignored
    nics = [nic for nic in nics if nic.mac not in ignored]
    elsewhere = attempt.ports_elsewhere([nic.mac for nic in nics if nic.mac not in own_macs])
    missing = [
        Port(uuid=str(uuid.uuid4()), node=attempt.node.uuid, address=nic.mac)
        for nic in nics
        if nic.mac not in own_macs and nic.mac not in elsewhere
    ]
    for address, node in elsewhere.items():
        message = f"the BMC reports NIC {address}, which is a port of node {node}"
        attempt.warn("ports", message, reason=Reason.PORT_CONFLICT)
    if not missing:
        return
    try:
        attempt.write(lambda tx: tx.ports.add(missing))
        attempt.ports.extend(missing)
    except ConflictError as exc:
        attempt.warn("ports", f"no ports created: {exc}", reason=Reason.PORT_CONFLICT)
        return
    attempt.note("ports", f"created from the NICs that the BMC reports: {', '.join(port.address for port in missing)}")
