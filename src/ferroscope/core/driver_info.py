"""What ``driver_info`` and documents like it say: where a BMC is, and its secrets, which only that BMC may get. Pure.

A secret is the value of a field with a telling name (``values.is_secret``), at any depth: in plain text, encrypted, or
by reference. An encrypted secret is stored as an object, not as a text. A process of a release without encryption then
rejects the field as "not a string", instead of sending ciphertext to a BMC as a password.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ferroscope_client.core import values
from ferroscope_client.core.bmc_place import hosts, is_address, is_place
from ferroscope_client.core.host_spelling import canonical_host
from ferroscope_client.core.node import Document, Node
from ferroscope_client.core.passwords import REFERENCE, is_reference
from ferroscope_client.core.values import is_secret

# The position of a value: the document's field and the keys that lead to the value.
Path = tuple[str, ...]

# The only key of an encrypted value. It is a secret's name, so releases without encryption mask the value too.
ENCRYPTED: Final = "encrypted_secret"
# Stands for a secret that the API does not decrypt, while a driver validates ``driver_info``: a valid password and key.
STAND_IN: Final = "00000000"


def is_encrypted(value: Any) -> bool:
    """Whether this is the stored form of an encrypted value."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(ENCRYPTED), str)


def holds_concealed(value: Any) -> bool:
    """Whether an encrypted value or a reference is in it, at any depth."""
    if isinstance(value, str):
        return value.startswith(REFERENCE)
    if isinstance(value, dict):
        return is_encrypted(value) or any(map(holds_concealed, value.values()))
    return isinstance(value, list) and any(map(holds_concealed, value))


def is_concealed(key: str, value: Any) -> bool:
    """Whether a driver gets another value: it is encrypted, or a reference. A BMC's location cannot be a reference."""
    if isinstance(value, str):
        return value.startswith(REFERENCE) and not is_place(key)
    return isinstance(value, dict) and is_encrypted(value)


def replace_values(document: Document, chosen: Callable[[str, Any], bool], new: Callable[[Path, Any], Any]) -> Document:
    """Return the document with each value for which ``chosen(key, value)`` replaced by ``new(path, value)``."""
    return {key: _replace_value(key, value, (key,), chosen, new) for key, value in document.items()}


def _replace_value(
    key: str, value: Any, path: Path, chosen: Callable[[str, Any], bool], new: Callable[[Path, Any], Any]
) -> Any:
    if chosen(key, value):
        return new(path, value)
    if isinstance(value, dict):
        return {name: _replace_value(name, item, (*path, name), chosen, new) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_value("", item, (*path, str(number)), chosen, new) for number, item in enumerate(value)]
    return value


def is_plain(key: str, value: Any) -> bool:
    """Whether this is a secret in plain text."""
    return bool(value) and is_secret(key) and key != ENCRYPTED and not is_encrypted(value) and not is_reference(value)


def count_plain(document: Document) -> int:
    """Return the number of secrets in plain text."""
    paths: list[Path] = []
    replace_values(document, is_plain, lambda path, _value: paths.append(path))
    return len(paths)


def encrypted_values(document: Document) -> Iterator[str]:
    """Yield the ciphertext of each encrypted value."""
    ciphertexts: list[str] = []
    replace_values(
        document, lambda _key, value: is_encrypted(value), lambda _path, value: ciphertexts.append(value[ENCRYPTED])
    )
    yield from ciphertexts


def references(document: Document) -> set[str]:
    """Return the references in the document, at any depth."""
    names: set[str] = set()
    replace_values(document, lambda _key, value: is_reference(value), lambda _path, value: names.add(value))
    return names


def for_validation(node: Node) -> Node:
    """Return the node with ``STAND_IN`` for encrypted secrets and references: only workers decrypt and resolve them."""
    if not holds_concealed(node.driver_info):
        return node
    info = replace_values(node.driver_info, is_concealed, lambda *_: STAND_IN)
    return msgspec.structs.replace(node, driver_info=info)


# Stored secrets are kept from being sent to another BMC.
#
# ``driver_info`` has a BMC's location, how its identity is checked, and its credentials. A user who could change the
# first two and keep the stored credentials would have them sent to a server of their choice. So a change of the
# location, the driver or the identity check requires the secrets to be supplied again. A location that only an
# unauthenticated machine reported is ``unconfirmed`` until an operator confirms it.

_UNCONFIRMED: Final = "bmc_unconfirmed"
# Default values: setting them explicitly changes nothing.
_DEFAULTS: Final = frozenset({"", "none", "true"})


def secret_fields(info: Document) -> list[str]:
    """Return the fields of ``driver_info`` that hold secrets, at any depth."""
    return sorted(name for name, value in info.items() if value and _holds_secret(name, value))


def _holds_secret(name: str, value: object) -> bool:
    return is_reference(value) or values.mask({name: value}) != {name: value}


def moved_fields(before: Document, after: Document) -> list[str]:
    """Return the changed fields that define the BMC's location or its identity check."""
    names = {name for name in (*before, *after) if is_place(name)}
    return sorted(name for name in names if _plain(before.get(name)) != _plain(after.get(name)))


def moved_from(before: Node, after: Node) -> list[str]:
    """Return the changed fields that decide where secrets are sent, including the driver."""
    changed = moved_fields(before.driver_info, after.driver_info)
    return ["driver", *changed] if before.driver != after.driver else changed


def exposed_fields(before: Node, after: Node, sent_fields: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the changed location fields, and the stored secrets that would be sent there without being supplied
    again."""
    changed = moved_from(before, after)
    stored, info = before.driver_info, after.driver_info
    kept = [name for name in secret_fields(stored) if name not in sent_fields and info.get(name) == stored[name]]
    return (changed, [name for name in kept if name not in changed]) if changed else ([], [])


def is_unconfirmed(node: Node) -> bool:
    """Whether only the machine itself, unauthenticated, reported the location of its BMC."""
    return bool(node.internal.get(_UNCONFIRMED))


def withheld_reason(node: Node, *, networks: Collection[str]) -> str:
    """Return why the stored secrets must not be sent to the node's BMC, "" if they may. Each caller of a driver asks.

    ``networks``: where BMCs may be. With such a limit, a machine cannot name an arbitrary host.
    """
    if networks or not is_unconfirmed(node) or not (secret_names := secret_fields(node.driver_info)):
        return ""
    return (
        f"the BMC address was reported by the machine itself, so {', '.join(secret_names)} is not sent there: "
        "approve the node, set the address yourself, or set [drivers] bmc_networks"
    )


def confirm_bmc(node: Node, *, by_operator: bool) -> None:
    """Record in the node (the caller's copy) whether an operator has confirmed the location of its BMC."""
    internal = {name: value for name, value in node.internal.items() if name != _UNCONFIRMED}
    node.internal = internal if by_operator else internal | {_UNCONFIRMED: True}


def _plain(value: object) -> str:
    text = str(value).strip().lower() if value is None or isinstance(value, bool) else str(value).strip()
    return "" if text in _DEFAULTS else text


# The BMC addresses in ``driver_info``: hosts, and the addresses that need no DNS lookup. Pure.
#
# An api process uses only these; a worker also resolves host names.


def literal_addresses(info: Document) -> frozenset[str]:
    """Return the addresses as stored, without DNS lookups; a host name in its canonical spelling."""
    host_addresses = (
        values.normalized_ip(host) if is_address(host) else canonical_host(host) for _, host in hosts(info)
    )
    return frozenset(filter(None, host_addresses))


# The BMC of a request, which handles one command at a time, and its network.

MAX_BMC: Final = 255
# The tunnel range. The rest of 127.0.0.0/8 is treated like other networks: simulated sites are spread over it.
_TUNNELS: Final = ipaddress.ip_network("127.0.0.0/24")
_LOOPBACK_6: Final = ipaddress.ip_address("::1")


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
