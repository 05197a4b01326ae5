"""What the BMC of a simulated machine reports: an inventory without what only an operating system sees, and health.

Both follow from the machine's number, as the inventory of its ramdisk does, so the two agree. The format is that of
``contracts.bmc.OutOfBand`` and ``ReportsHealth``.
"""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Document
from ferroscope_sim.inventory.body import document
from ferroscope_sim.inventory.hardware import Dice
from ferroscope_sim.outcomes import Health

_NIC: Final = ("mac_address", "speed_mbps")
_DISK: Final = ("model", "vendor", "serial", "size", "rotational", "wwn", "tran")
_FAN_COUNT: Final = 4
_ALIKE: Final = ("cpu", "system_vendor", "bmc_address", "bmc_mac")
# The entries of the event log, the oldest first.
_LOG: Final = {
    "ok": (),
    "failing-drive": (("2026-01-17T03:12:44Z", "warning", "Predictive failure on drive {drive}."),),
    "failed-fan": (
        ("2026-01-16T22:40:03Z", "warning", "Fan {fan} speed is below the lower critical threshold."),
        ("2026-01-16T22:41:10Z", "critical", "Fan {fan} has failed. Fan redundancy is lost."),
    ),
}


def inventory(index: int) -> Document:
    """Return the hardware of machine ``index`` as its BMC knows it."""
    full: Document = document(index)["inventory"]
    nics = sorted(full["interfaces"], key=lambda nic: str(nic["mac_address"]))
    alike = {name: full[name] for name in _ALIKE}
    return alike | {
        "cpu": {name: value for name, value in full["cpu"].items() if name != "flags"},
        "memory": {"physical_mb": full["memory"]["physical_mb"]},
        "interfaces": [
            {"name": f"NIC.{number}"} | {name: nic[name] for name in _NIC} for number, nic in enumerate(nics, 1)
        ],
        "disks": [
            {"name": _bay(number)} | {name: disk[name] for name in _DISK} for number, disk in enumerate(full["disks"])
        ],
        "boot": {"current_boot_mode": full["boot"]["current_boot_mode"]},
    }


def health(index: int, state: Health = "ok") -> Document:
    """Return ``firmware`` and ``health``; ``state`` is what is wrong with the machine."""
    dice, disks = Dice(index, topic=7), document(index)["inventory"]["disks"]
    bad_drive, bad_fan = dice.between(0, len(disks) - 1), dice.between(1, _FAN_COUNT)
    drives = [
        _drive(number, disk, left=dice.between(60, 99), fails=state == "failing-drive" and number == bad_drive)
        for number, disk in enumerate(disks)
    ]
    fans = [
        _fan(number, dice, stopped=state == "failed-fan" and number == bad_fan) for number in range(1, _FAN_COUNT + 1)
    ]
    parts = drives + [
        {"component": "fan", "name": fan["name"], "health": fan["health"]} for fan in fans if fan["health"] != "ok"
    ]
    entries = [
        {"created": at, "severity": severity, "message": message.format(drive=_bay(bad_drive), fan=bad_fan)}
        for at, severity, message in _LOG[state]
    ]
    version = f"2.{dice.between(10, 12)}"
    return {
        "firmware": [{"component": "bmc", "name": "BMC", "version": version, "vendor": "Simulated"}],
        "health": {
            "state": {"ok": "ok", "failing-drive": "warning", "failed-fan": "critical"}[state],
            "parts": parts,
            "sensors": [*_temperatures(dice), *fans],
            "log": entries[::-1],
            "complete": True,
        },
    }


def _bay(number: int) -> str:
    return f"Disk {number} in bay 0:{number}"


def _drive(number: int, disk: Document, *, left: int, fails: bool) -> Document:
    part = {"component": "drive", "name": _bay(number), "model": disk["model"], "serial": disk["serial"]}
    if fails:
        return part | {"health": "warning", "problem": "failure predicted"}
    return part | {"health": "ok"} | ({} if disk["rotational"] else {"life_left": left})


def _fan(number: int, dice: Dice, *, stopped: bool) -> Document:
    speed = 0 if stopped else dice.between(5200, 7400)
    sensor = {"kind": "fan", "name": f"Fan {number}", "reading": speed, "unit": "RPM"}
    return sensor | {"health": "critical" if stopped else "ok"}


def _temperatures(dice: Dice) -> list[Document]:
    ranges = (("Inlet", 19, 26), ("CPU 1", 38, 61), ("CPU 2", 38, 61), ("Exhaust", 29, 40))
    return [
        {"kind": "temperature", "name": name, "reading": dice.between(low, high), "unit": "°C", "health": "ok"}
        for name, low, high in ranges
    ]
