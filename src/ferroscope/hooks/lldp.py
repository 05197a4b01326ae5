"""Hooks that read LLDP, by which switches describe the other end of a cable.

``parse-lldp`` writes it, parsed, to ``plugin_data.parsed_lldp``: interface name -> ``switch_chassis_id``,
``switch_port_id``, ``switch_system_name``, VLANs and so on; see ``ferroscope_client.lldp``.
``local-link-connection`` sets the switch and switch port of the node's ports: ``switch_id`` is the switch's MAC (unset
if the switch uses another identifier), ``port_id`` its port, ``switch_info`` its name. Values set by an operator are
not changed. Both skip malformed parts of a TLV, with a warning, and use the rest. If an interface has several recorded
neighbors, the first bridge or router counts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import listing, part, printable, warn
from ferroscope_client import lldp
from ferroscope_client.core.json_safety import clean_text
from ferroscope_client.hardware import readings

MAX_INTERFACES: Final = 64  # more than a machine has cables


class ParseLldpHook(InspectionHook):
    """Writes `plugin_data.parsed_lldp`: the LLDP data of each interface, under names that begin with `switch_`."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        recorded = [
            (name, raw)
            for name, record in readings.named_interfaces(inventory)
            if (raw := readings.lldp(name, record, plugin_data))
        ]
        problems = []
        parsed: Document = {}
        for name, raw in recorded[:MAX_INTERFACES]:
            tlvs, unreadable = lldp.frame(raw)
            values, malformed = lldp.values(tlvs)
            problems += [f"{printable(name)}: {problem}" for problem in (*unreadable, *malformed)]
            if values:
                parsed[name] = values
            if (count := len(lldp.neighbours(tlvs))) > 1:
                used_neighbour = values.get("switch_system_name") or values.get("switch_chassis_id")
                task.note(
                    "parse-lldp", f"{printable(name)} has {count} LLDP neighbours; {printable(used_neighbour)} is used"
                )
        if len(recorded) > MAX_INTERFACES:
            problems.insert(0, f"interfaces with LLDP after the first {MAX_INTERFACES} of {len(recorded)}")
        if parsed:
            plugin_data["parsed_lldp"] = {**part(plugin_data, "parsed_lldp"), **parsed}
        if problems:
            warn(task, "parse-lldp", f"skipped malformed LLDP data: {listing(problems, limit=5)}")


class LocalLinkConnectionHook(InspectionHook):
    """Sets `switch_id`, `port_id` and `switch_info` in `local_link_connection` of the node's ports."""

    dependencies = ("validate-interfaces",)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        ports = helpers.current(task)
        problems = []
        for nic in helpers.valid_nics(inventory, plugin_data):
            port = ports.get(nic.mac)
            recorded = readings.lldp(nic.name, nic.record, plugin_data) if port is not None else None
            if port is None or not recorded:
                continue
            tlvs, unreadable = lldp.frame(recorded)
            link, malformed = lldp.link(tlvs)
            problems += [f"{printable(nic.name)}: {problem}" for problem in (*unreadable, *malformed)]
            fields = msgspec.structs.asdict(link)
            connection = port.local_link_connection
            new = {
                name: value
                for name, value in fields.items()
                if value is not None and _is_new(value, connection.get(name))
            }
            if new:
                ports[nic.mac] = msgspec.structs.replace(port, local_link_connection={**connection, **new})
                helpers.save(task, ports[nic.mac])
        if problems:
            warn(task, "local-link-connection", f"skipped malformed LLDP data: {listing(problems, limit=5)}")


def _is_new(value: str, stored: object) -> bool:
    """Whether the port does not have this value yet, or has it with the padding that an earlier release kept."""
    return stored is None or (isinstance(stored, str) and stored != value and clean_text(stored).strip() == value)
