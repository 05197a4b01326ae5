"""The addresses by which a machine's BMC may call itself: literal, and resolved to IP addresses.

Resolved by a worker at the start of an inspection, outside any lock: DNS may be slow.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

import structlog

from ferroscope.domain.model import Node
from ferroscope.net import resolver
from ferroscope.net.resolver import UnresolvedError

# No name in the DNS is longer.
_MAX_HOST: Final = 253

_log = structlog.get_logger(__name__)


def resolve(node: Node, *, seconds: float) -> frozenset[str]:
    """Return every address in the ``*_address`` keys of ``driver_info``, loopback ones left out.

    A name may have several, v4 and v6. One that does not resolve, or not within ``seconds``, is
    kept as it is and logged. A BMC that is reached through another one has none of the latter's.
    """
    found: set[str] = set()
    bridged = node.driver_info.get("ipmi_bridging") not in (None, "", "no")
    for key, value in node.driver_info.items():
        if bridged and key.startswith("ipmi_"):
            continue
        if key.endswith("_address") and isinstance(value, str) and value:
            host = _host(value)
            if host and len(host) <= _MAX_HOST:
                found.update(_addresses(node, key, host, seconds))
    return frozenset(found)


def normalize(address: str) -> str | None:
    """Return an IP address in its canonical form, None where it is none or means nothing."""
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0].split("/", 1)[0])
    except ValueError:
        return None
    return None if parsed.is_loopback or parsed.is_unspecified else str(parsed)


def _host(value: str) -> str | None:
    try:
        ipaddress.ip_address(value.strip("[]"))
    except ValueError:
        try:
            return urlsplit(value if "//" in value else f"//{value}").hostname
        except ValueError:
            return None
    return value.strip("[]")


def _addresses(node: Node, key: str, host: str, seconds: float) -> set[str]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        literal = normalize(host)
        return {literal} if literal else set()
    try:
        found = resolver.resolve(host, seconds)
    except UnresolvedError as exc:
        _log.warning("cannot resolve a BMC address", node=node.uuid, field=key, error=str(exc))
        return {host.lower()}
    resolved = {address for text in found if (address := normalize(text))}
    return resolved | {host.lower()} if resolved else set()
