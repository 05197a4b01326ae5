"""Which worker lane carries out a request, with which priority, and which BMC it needs. Pure.

Computing and waiting for BMCs never share a thread: a callback must not wait behind a slow BMC. Everything here is
derived from the request's event and the node's driver_info; no host name is resolved.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.core.states import COMMANDS, Event
from ferroscope_client.core.obstacles import Lane

MAX_BMC: Final = 255
# The tunnel range. The rest of 127.0.0.0/8 is treated like other networks: simulated sites are spread over it.
_TUNNELS: Final = ipaddress.ip_network("127.0.0.0/24")
_LOOPBACK_6: Final = ipaddress.ip_address("::1")


_COMPUTE: Final = frozenset({Event.CONTINUE, Event.REAPPLY})
# They end inspections, which frees capacity and powers machines off, so they go first.
ENDING: Final = frozenset({Event.FINISH, Event.FAIL, Event.ABORT, Event.TIMEOUT, Event.DELETE})
# An abort or a delete must not wait until the start of its inspection leaves the queue.
OVERTAKING: Final = frozenset({Event.ABORT, Event.DELETE})


def lane_of(event: str) -> Lane:
    """Return the lane of an event; events of another release, which are unknown here, may need a BMC."""
    return Lane.COMPUTE if event in _COMPUTE else Lane.BMC


def priority_of(event: str) -> int:
    """Return the priority of an event in its lane; the lowest is claimed first."""
    if event in ENDING or event in _COMPUTE:
        return 0
    return 1 if event in COMMANDS else 2


class BmcAddress(msgspec.Struct, frozen=True):
    """A BMC, which handles one command at a time, and its network.

    ``network`` is the /24 or /64; None for host names, and for 127.0.0.0/24 and ::1, which are used by tunnels.
    """

    bmc: str
    network: str | None


def bmc_of(driver: str, driver_info: dict[str, object]) -> BmcAddress | None:
    """Return the location of the node's BMC; None if driver_info has none.

    Uses the driver's own ``*_address``, else the first one. Several BMCs may share an address, like those of a
    simulator; ``*_node`` tells them apart.
    """
    key = f"{driver}_address"
    if not _is_text(driver_info.get(key)):
        keys = sorted(name for name, value in driver_info.items() if name.endswith("_address") and _is_text(value))
        if not keys:
            return None
        key = keys[0]
    prefix = key.removesuffix("_address")
    port, machine = driver_info.get(f"{prefix}_port"), driver_info.get(f"{prefix}_node")
    bmc_address = _parse_address(str(driver_info[key]), str(port) if isinstance(port, int | str) else "")
    if machine is None:
        return bmc_address
    return msgspec.structs.replace(bmc_address, bmc=f"{bmc_address.bmc} {machine}"[:MAX_BMC])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


@lru_cache(maxsize=16384)
def _parse_address(text: str, port: str) -> BmcAddress:
    host = text.strip().lower()
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        try:
            parts = urlsplit(host if "//" in host else f"//{host}")
            host, port = parts.hostname or host, str(parts.port or port)
        except ValueError:  # the driver reports the error
            return BmcAddress(host[:MAX_BMC], None)
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return BmcAddress(_join_port(host.rstrip("."), port), None)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return BmcAddress(
        _join_port(f"[{address}]" if address.version == 6 and port else str(address), port), _network(address)
    )


def _join_port(host: str, port: str) -> str:
    return (f"{host}:{port}" if port else host)[:MAX_BMC]


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    if address.is_unspecified or address == _LOOPBACK_6 or address in _TUNNELS:
        return None
    length = 24 if address.version == 4 else 64
    return str(ipaddress.ip_network(f"{str(address).partition('%')[0]}/{length}", strict=False))
