"""Who may learn a BMC's stored secrets: nobody but the BMC for which somebody gave them. Pure.

``driver_info`` says where a BMC is, how its identity is checked and what opens it. Whoever may change the
first two, and leave the third as it is stored, would be sent what they must not see. So both go together: a
change of the place, of the driver, or of how the place proves itself needs the secrets given anew. A machine
that nobody has authenticated may say where its BMC is; that is ``unconfirmed`` until an operator agrees.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import urlsplit

from ferroscope.core import values
from ferroscope.core.model import Document, Node

# Where the BMC is, behind which other one, and by what it is known to be the right one and nobody listens.
_PLACE: Final = re.compile(
    r"_(?:address|port|host|url|verify_ca|auth_type|protocol_version|root_prefix|tls_minimum_version|tls_ciphers"
    r"|cipher_suite|bridging|(?:transit|target|local)_\w{1,32}|(?:transit|target)_channel)\Z"
)
_UNCONFIRMED: Final = "bmc_unconfirmed"
# What goes without saying: to write it down changes nothing.
_DEFAULTS: Final = frozenset({"", "none", "true"})


def secrets(info: Document) -> list[str]:
    """Return the fields of ``driver_info`` that hold a secret, at whatever depth."""
    return sorted(name for name, value in info.items() if value and values.mask({name: value}) != {name: value})


def moved(before: Document, after: Document) -> list[str]:
    """Return the fields that say where the BMC is, or how it proves itself, and differ."""
    names = {name for name in (*before, *after) if _PLACE.search(name)}
    return sorted(name for name in names if _plain(before.get(name)) != _plain(after.get(name)))


def exposed(before: Node, after: Node, given: Collection[str]) -> tuple[list[str], list[str]]:
    """Return what changed about the BMC's place, and which stored secrets would go there without having been given."""
    changed = moved(before.driver_info, after.driver_info)
    if before.driver != after.driver:
        changed.insert(0, "driver")
    stored = before.driver_info
    kept = [name for name in secrets(stored) if name not in given and after.driver_info.get(name) == stored[name]]
    return (changed, [name for name in kept if name not in changed]) if changed else ([], [])


def unconfirmed(node: Node) -> bool:
    """Whether where the node's BMC is was said by its machine alone, without any credential."""
    return bool(node.internal.get(_UNCONFIRMED))


def confirm(node: Node, *, by_operator: bool) -> None:
    """Note in the node (a copy that is the caller's own) whether an operator has said, or agreed, where its BMC is."""
    internal = {name: value for name, value in node.internal.items() if name != _UNCONFIRMED}
    node.internal = internal if by_operator else internal | {_UNCONFIRMED: True}


def _plain(value: object) -> str:
    text = str(value).strip().lower() if value is None or isinstance(value, bool) else str(value).strip()
    return "" if text in _DEFAULTS else text


# Where ``driver_info`` says that a node's BMC is: hosts, and the addresses that need no name server. Pure.
#
# What an api process knows of a node's BMC without asking anybody; a worker resolves the names as well.

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
