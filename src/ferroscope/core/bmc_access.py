"""Keeps a BMC's stored secrets from being sent to another BMC. Pure.

``driver_info`` has a BMC's location, how its identity is checked, and its credentials. A user who could change the
first two and keep the stored credentials would have them sent to a server of their choice. So a change of the
location, the driver or the identity check requires the secrets to be supplied again. A location that only an
unauthenticated machine reported is ``unconfirmed`` until an operator confirms it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ferroscope.core.model import Document, Node
from ferroscope_client.core import values
from ferroscope_client.core.bmc_place import hosts, is_address, is_place
from ferroscope_client.core.host_spelling import canonical_host
from ferroscope_client.core.passwords import is_reference

_UNCONFIRMED: Final = "bmc_unconfirmed"
# Default values: setting them explicitly changes nothing.
_DEFAULTS: Final = frozenset({"", "none", "true"})


def secrets(info: Document) -> list[str]:
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
    stored = before.driver_info
    kept = [name for name in secrets(stored) if name not in sent_fields and after.driver_info.get(name) == stored[name]]
    return (changed, [name for name in kept if name not in changed]) if changed else ([], [])


def is_unconfirmed(node: Node) -> bool:
    """Whether only the machine itself, unauthenticated, reported the location of its BMC."""
    return bool(node.internal.get(_UNCONFIRMED))


def withheld_reason(node: Node, *, networks: Collection[str]) -> str:
    """Return why the stored secrets must not be sent to the node's BMC, "" if they may. Each caller of a driver asks.

    ``networks``: where BMCs may be. With such a limit, a machine cannot name an arbitrary host.
    """
    if networks or not is_unconfirmed(node) or not (secret_names := secrets(node.driver_info)):
        return ""
    return (
        f"the BMC address was reported by the machine itself, so {', '.join(secret_names)} is not sent there: "
        "approve the node, set the address yourself, or set [drivers] bmc_networks"
    )


def confirm(node: Node, *, by_operator: bool) -> None:
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
