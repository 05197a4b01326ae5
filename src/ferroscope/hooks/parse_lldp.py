"""``parse-lldp``: writes the switches' LLDP data, parsed, to ``plugin_data.parsed_lldp``.

Interface name -> ``switch_chassis_id``, ``switch_port_id``, ``switch_system_name``, VLANs and so on; see
``ferroscope.lldp``. At most 64 interfaces are parsed, which is more than a machine has cables.
"""

from __future__ import annotations

from typing import Final

from ferroscope import lldp
from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import listed, part, shown, warn

MAX_INTERFACES: Final = 64


class ParseLldpHook(InspectionHook):
    """Writes `plugin_data.parsed_lldp`: the LLDP data of each interface, under names that begin with `switch_`."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        recorded = [
            (name, raw) for name, record in helpers.named(inventory) if (raw := helpers.lldp(name, record, plugin_data))
        ]
        problems = []
        parsed: Document = {}
        for name, raw in recorded[:MAX_INTERFACES]:
            tlvs, unreadable = lldp.frame(raw)
            found, malformed = lldp.values(tlvs)
            problems += [f"{shown(name)}: {problem}" for problem in (*unreadable, *malformed)]
            if found:
                parsed[name] = found
        if len(recorded) > MAX_INTERFACES:
            problems.insert(0, f"interfaces with LLDP after the first {MAX_INTERFACES} of {len(recorded)}")
        if parsed:
            plugin_data["parsed_lldp"] = {**part(plugin_data, "parsed_lldp"), **parsed}
        if problems:
            warn(task, "parse-lldp", f"skipped malformed LLDP data: {listed(problems, limit=5)}")
