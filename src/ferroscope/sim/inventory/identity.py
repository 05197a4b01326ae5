"""What identifies a simulated machine: MAC and BMC addresses, unique by its index, and its dice.

MACs are locally administered (02:fe:…) and BMC addresses private (10/8, fd00:fe20::/96), so that
no real machine can have them.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final, Literal, TypeVar

T = TypeVar("T")

# Three bytes of a MAC address, less the first and last address of 10/8.
MAX_INDEX: Final = (1 << 24) - 3

_BMC_PORT: Final = 0xB0
_BMC_V4: Final = int(IPv4Address("10.0.0.1"))
_BMC_V6: Final = int(IPv6Address("fd00:fe20::1"))
_MASK: Final = (1 << 64) - 1


class Dice:
    """Numbers that depend on the machine's index and a topic only (splitmix64, the same everywhere)."""

    def __init__(self, index: int, topic: int = 0) -> None:
        # Mixed, because seeds that differ by the step would give the same numbers, one later.
        self._state = _mixed(_checked(index) << 8 | topic)

    def bits(self) -> int:
        """Return 64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return _mixed(self._state)

    def between(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both included."""
        return low + self.bits() % (high - low + 1)

    def pick(self, choices: tuple[T, ...]) -> T:
        return choices[self.bits() % len(choices)]

    def text(self, alphabet: str, length: int) -> str:
        """Return a serial number of at most 12 characters."""
        value = self.bits()
        size = len(alphabet)
        chars = []
        for _ in range(length):
            value, digit = divmod(value, size)
            chars.append(alphabet[digit])
        return "".join(chars)


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _checked(index: int) -> int:
    if not 0 <= index <= MAX_INDEX:
        raise ValueError(f"a simulated machine's index is between 0 and {MAX_INDEX}, not {index}")
    return index


def macs(index: int) -> tuple[str, ...]:
    """Return the MACs of all 2 to 8 NICs; the first is the one that boots."""
    count = Dice(index, topic=1).pick((2, 2, 3, 4, 4, 4, 6, 8))
    return tuple(_mac(index, port) for port in range(count))


def pxe_mac(index: int) -> str:
    """Return the MAC of the NIC that boots."""
    return _mac(_checked(index), 0)


def bmc_mac(index: int) -> str:
    return _mac(_checked(index), _BMC_PORT)


def bmc_address(index: int, version: Literal[4, 6] = 4) -> str:
    """Return the address of the machine's BMC."""
    _checked(index)
    return str(IPv4Address(_BMC_V4 + index) if version == 4 else IPv6Address(_BMC_V6 + index))


def _mac(index: int, port: int) -> str:
    return f"02:fe:{index >> 16:02x}:{index >> 8 & 255:02x}:{index & 255:02x}:{port:02x}"
