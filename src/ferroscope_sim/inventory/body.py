"""The whole callback body of a simulated machine, in a size of its own or in one that is asked for.

A size is met with what real bodies differ by: the bus, memory modules, and for small ones fewer
disks and no LLDP beyond the NIC that booted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.core.model import Document
from ferroscope_sim.inventory import hardware, nics
from ferroscope_sim.inventory.catalog import MODELS, Model
from ferroscope_sim.inventory.hardware import Dice, pxe_mac

MIN_SIZE: Final = 10_000
MAX_SIZE: Final = 4_000_000
"""Bytes of JSON that ``size`` may be, for a machine."""

_DMI_FROM: Final = 24_000
_DIMM_SIZE: Final = 800


def generate(index: int, *, size: int | None = None, error: str | None = None) -> bytes:
    """Return the JSON body that the ramdisk of machine ``index`` posts, 10 to 60 KB by its index.

    With ``size`` it is that many bytes, give or take 150; ``error`` is what the ramdisk complains of.
    """
    dice = Dice(index, topic=6)
    wanted = dice.between(11_000, 58_000) if size is None else size
    if not MIN_SIZE <= wanted <= MAX_SIZE:
        raise ValueError(f"the size of a simulated inventory is between {MIN_SIZE} and {MAX_SIZE} bytes, not {wanted}")
    model = dice.pick(MODELS)
    body = _body(index, model, error, roomy=True)
    room = wanted - len(msgspec.json.encode(body))
    if room < 0:
        body = _body(index, model, error, roomy=False)
        room = wanted - len(msgspec.json.encode(body))
    if wanted >= _DMI_FROM:
        dmi = hardware.dmi(index, model, dimms=min(model.dimms, max(2, room // (2 * _DIMM_SIZE))))
        room -= len(msgspec.json.encode(dmi))
        body["dmi"] = dmi
    body["pci_devices"] = hardware.pci_devices(model, max(0, room // hardware.PCI_DEVICE_SIZE))
    return msgspec.json.encode(body)


def document(index: int, *, size: int | None = None, error: str | None = None) -> Document:
    """Return what ``generate`` encodes, as a document of the caller's own."""
    body: Document = msgspec.json.decode(generate(index, size=size, error=error))
    return body


def _body(index: int, model: Model, error: str | None, *, roomy: bool) -> Document:
    """Return the body without what fills it up; not ``roomy``: as small as such a machine's can be."""
    interfaces = nics.interfaces(index, model, lldp_everywhere=roomy)
    disks = hardware.disks(index, model, most=24 if roomy else 3)
    mac = pxe_mac(index)
    body: Document = {
        "inventory": {
            "interfaces": interfaces,
            "cpu": hardware.cpu(model),
            "disks": disks,
            "memory": hardware.memory(model),
            **hardware.bmc(index, model),
            "system_vendor": hardware.system_vendor(index, model),
            "boot": {
                "current_boot_mode": model.boot_mode,
                # pxelinux, which boots the BIOS machines, passes the MAC on in a form of its own.
                "pxe_interface": mac if model.boot_mode == "uefi" else f"01-{mac.replace(':', '-')}",
            },
            "hostname": f"sim-{index}",
        },
        "root_disk": disks[0],
        "boot_interface": mac,
        "configuration": {
            "collectors": ["default", "logs", "pci-devices", "dmi-decode", "numa-topology"],
            "managers": [{"name": "generic_hardware_manager", "version": "1.2"}],
        },
        "error": error,
    }
    if roomy:
        body["numa_topology"] = hardware.numa(model, interfaces)
    return body
