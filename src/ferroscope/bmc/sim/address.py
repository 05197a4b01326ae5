"""Where a node's simulated BMC is: what ``driver_info`` must say, and what is wrong with it.

Only IP addresses and ``localhost`` are taken: a host name would have to be resolved first, and
the system's resolver keeps to no deadline of ours.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

import msgspec

from ferroscope.bmc.driver_info import wrong
from ferroscope.core.model import Document

ADDRESS_KEY: Final = "sim_address"
NODE_KEY: Final = "sim_node"
PROPERTIES: Final = {
    ADDRESS_KEY: "The simulator's address as IP:PORT, such as 127.0.0.1:7623. Required.",
    NODE_KEY: "The machine's name in the simulator. Required.",
}
_MAX_NAME: Final = 255


class Endpoint(msgspec.Struct, frozen=True):
    """An IP address and a TCP port, with the text that gave them, for messages."""

    host: str
    port: int
    text: str


def locate(driver_info: Document) -> tuple[Endpoint, str]:
    """Return the simulator's endpoint and the machine's name there; raise a permanent ``BmcError``."""
    name = driver_info.get(NODE_KEY)
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise wrong(f"driver_info needs {NODE_KEY}: the machine's name in the simulator")
    address = driver_info.get(ADDRESS_KEY)
    endpoint = _parse(address) if isinstance(address, str) else None
    if endpoint is None:
        raise wrong(f"driver_info needs {ADDRESS_KEY}: the simulator's address as IP:PORT, such as 127.0.0.1:7623")
    return endpoint, name


@lru_cache(maxsize=16384)
def _parse(text: str) -> Endpoint | None:
    host, _, digits = text.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536):
        return None
    host = "127.0.0.1" if host == "localhost" else host
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return Endpoint(host=host, port=int(digits), text=text)
