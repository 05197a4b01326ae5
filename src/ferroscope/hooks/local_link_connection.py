"""``local-link-connection``: sets the switch and switch port of the node's ports from LLDP.

``switch_id`` is the switch's MAC (unset if the switch uses another identifier), ``port_id`` its port, ``switch_info``
its name. Values set by an operator are not changed. A malformed TLV is skipped, with a warning.
"""

from __future__ import annotations

import msgspec

from ferroscope import lldp
from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import listed, shown, warn


class LocalLinkConnectionHook(InspectionHook):
    """Sets `switch_id`, `port_id` and `switch_info` in `local_link_connection` of the node's ports."""

    dependencies = ("validate-interfaces",)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        ports = helpers.current(task)
        bad = []
        for nic in helpers.of(inventory, plugin_data):
            port = ports.get(nic.mac)
            recorded = helpers.lldp(nic.name, nic.record, plugin_data) if port is not None else None
            if port is None or not recorded:
                continue
            tlvs, unreadable = lldp.frame(recorded)
            link, malformed = lldp.link(tlvs)
            bad += [f"{shown(nic.name)}: {problem}" for problem in (*unreadable, *malformed)]
            fields = msgspec.structs.asdict(link)
            known = port.local_link_connection
            new = {name: value for name, value in fields.items() if value is not None and name not in known}
            if new:
                ports[nic.mac] = msgspec.structs.replace(port, local_link_connection={**known, **new})
                helpers.save(task, ports[nic.mac])
        if bad:
            warn(task, "local-link-connection", f"skipped malformed LLDP data: {listed(bad, limit=5)}")
