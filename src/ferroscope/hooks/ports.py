"""``ports``: creates, updates and deletes the node's ports according to ``validate-interfaces``.

``[inspector] add_ports`` selects the NICs that become ports, and ``keep_ports`` the existing ports that are kept.
``update_pxe_enabled``: the flag follows the NIC that booted; otherwise new ports may boot. A DHCP client ID is
stored in ``extra["client-id"]``. Source: the Bare Metal service's hook of this name. Differences: a MAC that belongs to
another node is a warning on the timeline, ``update_pxe_enabled`` also concerns new ports, as in ironic-inspector, and
if the data does not tell which NIC booted, ``pxe_enabled`` is never cleared.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ferroscope.core.model import Document, Port, Severity
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import listing
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.reasons import Reason

_MAX_CLIENT_ID: Final = 255


class _PortNic(msgspec.Struct, frozen=True):
    """One MAC of the machine; several interfaces (a bond and its members) may share it."""

    mac: str
    pxe: bool = False
    client_id: str | None = None


class PortsHook(InspectionHook):
    """Adds, updates and deletes ports; writes ``is_added`` to every valid interface."""

    dependencies = ("validate-interfaces",)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        present = _nics(plugin_data, "all_interfaces")
        valid = _nics(plugin_data, "valid_interfaces")
        follows = task.settings.update_pxe_enabled and any(nic.pxe for nic in present.values())
        added = set()
        if task.settings.add_ports != "disabled":
            added = _add(task, valid.values(), follows=follows)
        for iface in plugin_data["valid_interfaces"].values():
            iface["is_added"] = mac_addresses.normalized_mac(iface["mac_address"]) in added
        removed = _remove(task, {"all": set(), "present": set(present), "added": set(valid)}[task.settings.keep_ports])
        updated = _update(task, present, follows=follows)
        _note(task, {"added": added, "removed": removed, "updated": updated})


def _nics(plugin_data: Document, key: str) -> dict[str, _PortNic]:
    """Return the NICs by MAC from the data that ``validate-interfaces`` wrote to ``key``."""
    interfaces = plugin_data.get(key)
    if not isinstance(interfaces, dict):
        raise HookError(Reason.HOOK_FAILED, f"plugin_data has no {key}; validate-interfaces must run first")
    nics: dict[str, _PortNic] = {}
    for iface in interfaces.values():
        mac = mac_addresses.normalized_mac(iface.get("mac_address")) if isinstance(iface, dict) else None
        if mac is None:
            raise HookError(Reason.HOOK_FAILED, f"plugin_data.{key} does not have the format of validate-interfaces")
        earlier = nics.get(mac, _PortNic(mac))
        nics[mac] = _PortNic(
            mac,
            pxe=earlier.pxe or iface.get("pxe_enabled") is True,
            client_id=earlier.client_id or _client_id(iface.get("client_id")),
        )
    return nics


def _client_id(value: object) -> str | None:
    if isinstance(value, str) and 0 < len(value) <= _MAX_CLIENT_ID and value.isprintable():
        return value
    return None


def _add(task: HookTask, nics: Iterable[_PortNic], *, follows: bool) -> set[str]:
    """Add a port for every NIC without one, with the NIC's ``pxe_enabled`` if it ``follows``; return their MACs."""
    own = helpers.current(task)
    missing = {nic.mac: nic for nic in nics if nic.mac not in own}
    elsewhere = task.ports_elsewhere(missing) if missing else {}
    if elsewhere:
        _warn(task, elsewhere)
    for mac in elsewhere:
        missing.pop(mac, None)
    for nic in missing.values():
        helpers.save(
            task,
            Port(
                uuid=str(uuid.uuid4()),
                node=task.node.uuid,
                address=nic.mac,
                pxe_enabled=nic.pxe or not follows,
                extra={"client-id": nic.client_id} if nic.client_id else {},
            ),
        )
    return set(missing)


def _warn(task: HookTask, elsewhere: dict[str, str]) -> None:
    conflicts = listing(f"{mac} (node {node})" for mac, node in sorted(elsewhere.items()))
    task.note(
        "ports",
        f"no ports added for MAC addresses of other nodes: {conflicts}",
        severity=Severity.WARNING,
        reason=Reason.PORT_CONFLICT,
        detail={"elsewhere": elsewhere},
    )


def _remove(task: HookTask, expected: set[str]) -> set[str]:
    """Delete the ports that are not expected, unless nothing is expected; return their MACs."""
    if not expected:
        return set()
    unexpected = [port for mac, port in helpers.current(task).items() if mac not in expected]
    for port in unexpected:
        helpers.remove(task, port)
    return {port.address for port in unexpected}


def _update(task: HookTask, present: dict[str, _PortNic], *, follows: bool) -> set[str]:
    """Update ``pxe_enabled`` (if it ``follows``) and the client ID of every port; return the changed MACs."""
    updated = set()
    for mac, port in helpers.current(task).items():
        nic = present.get(mac, _PortNic(mac))
        changes: dict[str, Any] = {}
        if follows and port.pxe_enabled is not nic.pxe:
            changes["pxe_enabled"] = nic.pxe
        # Not every boot loader passes the ID on, so a missing one means nothing.
        if nic.client_id and port.extra.get("client-id") != nic.client_id:
            changes["extra"] = {**port.extra, "client-id": nic.client_id}
        if changes:
            helpers.save(task, msgspec.structs.replace(port, **changes))
            updated.add(mac)
    return updated


def _note(task: HookTask, changes: dict[str, set[str]]) -> None:
    detail = {change: sorted(macs) for change, macs in changes.items() if macs}
    if detail:
        sentences = "; ".join(f"{change} {listing(macs)}" for change, macs in detail.items())
        task.note("ports", f"ports {sentences}", detail=detail)
