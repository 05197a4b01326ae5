"""Inventories of machines that do not exist, as the ramdisk of real ones would post them.

``generate`` gives the body of a callback for the machine with an index; the same index gives the
same machine for ever. Its addresses are known beforehand (``macs``, ``bmc_address``), so that a
fleet can be enrolled. Shapes and field names are ironic-python-agent's; the values are invented.
"""

from __future__ import annotations

from ferroscope_sim.inventory.body import MAX_SIZE, MIN_SIZE, document, generate
from ferroscope_sim.inventory.hardware import MAX_INDEX, bmc_address, bmc_mac, macs, pxe_mac

__all__ = [
    "MAX_INDEX",
    "MAX_SIZE",
    "MIN_SIZE",
    "bmc_address",
    "bmc_mac",
    "document",
    "generate",
    "macs",
    "pxe_mac",
]
