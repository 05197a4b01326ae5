"""Where ``driver_info`` says that a node's BMC is: hosts, and the addresses that need no name server. Pure.

What an api process knows of a node's BMC without asking anybody; a worker resolves the names as well.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ferroscope.domain.model import Document

# No name in the DNS is longer.
_MAX_HOST: Final = 253


def hosts(info: Document) -> Iterator[tuple[str, str]]:
    """Yield field and host of every ``*_address``; a BMC that is behind another one has none of the latter's."""
    for key, value in info.items():
        if not key.endswith("_address") or not isinstance(value, str):
            continue
        if info.get(f"{key.removesuffix('_address')}_bridging") not in (None, "", "no"):
            continue
        host = _host(value)
        if host and len(host) <= _MAX_HOST:
            yield key, host


def literal(info: Document) -> frozenset[str]:
    """Return the addresses as they are stored, without asking anybody; a name stands for itself."""
    found = (normalize(host) if is_address(host) else host.lower() for _, host in hosts(info))
    return frozenset(filter(None, found))


def is_address(host: str) -> bool:
    """Whether the host is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def normalize(address: str) -> str | None:
    """Return an IP address in its canonical form, None where it is none or means nothing."""
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0].split("/", 1)[0])
    except ValueError:
        return None
    return None if parsed.is_loopback or parsed.is_unspecified else str(parsed)


def _host(value: str) -> str | None:
    if is_address(value.strip("[]")):
        return value.strip("[]")
    try:
        return urlsplit(value if "//" in value else f"//{value}").hostname
    except ValueError:
        return None
