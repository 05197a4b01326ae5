"""The data of an introspection: processed, as it came, and run through the hooks once more.

Source: the Introspection API reference of ironic-inspector and what its clients do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ferroscope.api.baremetal import stored_data
from ferroscope.api.http.decoding import introspected_ident
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.api.introspection.inspections import Accepted, introspected
from ferroscope.contracts.data import Part


class IntrospectionData(msgspec.Struct, frozen=True):
    """The inventory, with all other data from the ramdisk and hooks as additional keys."""

    inventory: dict[str, Any]


def get_data(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the processed data of the newest introspection that has data."""
    return _data(context, call, stored_data.PROCESSED, "plugin_data", named)


def get_unprocessed_data(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the data of the newest introspection that has data, as the ramdisk sent it."""
    return _data(context, call, stored_data.UNPROCESSED, "unprocessed")


def reapply(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Process the stored data, or the given data, again."""
    stored_data.submit(context, introspected_ident(call), call.raw)
    return Reply(202, Accepted())


def named(plugin_data: bytes) -> bytes:
    """Return the plugin data with additional keys under the names of ironic-inspector, which its client reads.

    In each of ``all_interfaces``: ``mac``, ``ip``, ``pxe``, and ``lldp_processed`` from ``parsed_lldp``; and
    ``interfaces`` from ``valid_interfaces``. Existing keys are not replaced.
    """
    extra = msgspec.json.decode(plugin_data, type=dict[str, msgspec.Raw])
    switches = _object(extra.get("parsed_lldp"))
    for ours, theirs in (("all_interfaces", "all_interfaces"), ("valid_interfaces", "interfaces")):
        known = _object(extra.get(ours))
        if known and (theirs == ours or theirs not in extra):
            nics = {name: _named(one, switches.get(name)) for name, one in known.items()}
            extra[theirs] = msgspec.Raw(msgspec.json.encode(nics))
    return msgspec.json.encode(extra)


def _named(nic: Any, switch: Any) -> Any:
    if not isinstance(nic, dict):
        return nic
    names = {
        "mac": nic.get("mac_address"),
        "ip": nic.get("ipv4_address") or nic.get("ipv6_address"),
        "pxe": nic.get("pxe_enabled"),
    }
    if isinstance(switch, dict):
        names["lldp_processed"] = switch
    return names | nic


def _object(raw: msgspec.Raw | None) -> dict[str, Any]:
    value = None if raw is None else msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {}


def _data(
    context: ApiContext,
    call: Call[NoQuery, None],
    parts: tuple[Part, ...],
    beside: Part,
    translate: Callable[[bytes], bytes] = bytes,
) -> Reply:
    ident = introspected_ident(call)
    node, found = stored_data.of_node(context, lambda tx: introspected(tx, ident)[0], parts)
    there = stored_data.there(node, found)
    return Reply(200, stored_data.merged({**there, beside: translate(there[beside])}, beside))
