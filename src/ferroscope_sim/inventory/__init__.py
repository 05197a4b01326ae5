"""Inventories of simulated machines, in the format of the ramdisk's callback.

``generate`` returns the callback body of the machine with an index; the same index always gives the same machine. Its
addresses are known in advance (``macs``, ``bmc_address``), so that a fleet can be enrolled. Structure and field names
are ironic-python-agent's; the values are invented.
"""

from __future__ import annotations

from ferroscope_sim.inventory.body import MAX_SIZE, MIN_SIZE, document, generate
from ferroscope_sim.inventory.hardware import MAX_INDEX, bmc_address, bmc_mac, macs, nic_mac, pxe_mac

__all__ = [
    "MAX_INDEX",
    "MAX_SIZE",
    "MIN_SIZE",
    "bmc_address",
    "bmc_mac",
    "document",
    "generate",
    "macs",
    "nic_mac",
    "pxe_mac",
]
