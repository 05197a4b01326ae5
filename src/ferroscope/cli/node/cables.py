"""``ferroscope node lldp``: which switch port each NIC of a machine is plugged into, from its stored inventory.

It needs no hook: the frames are in what the ramdisk sent, and are read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from ferroscope.cli import stored
from ferroscope.cli.client import Api, Json
from ferroscope.cli.lookup import find, node_argument
from ferroscope.cli.output import Output, table, with_api
from ferroscope.hardware.parts import mapping

_TITLES: Final = ("NIC", "MAC", "SWITCH", "PORT", "VLAN", "MTU", "SWITCH'S ID")


@click.command("lldp")
@node_argument
@with_api
def lldp(api: Api, out: Output, *, ident: str) -> None:
    """Show which switch port each NIC is plugged into, as the switches told it (LLDP)."""
    data = stored.fetch(api, find(api, ident))
    found = list(_cables(mapping(data["inventory"]), mapping(data.get("plugin_data"))))
    out.show(found, lambda screen: screen.print(table(_TITLES, [_row(cable) for cable in found])))
    if not any(cable["lldp"] for cable in found):
        out.say("no switch told anything; the ramdisk collects LLDP with the kernel parameter ipa-collect-lldp=1")
    for cable in found:
        for problem in cable["problems"]:
            out.say(f"{cable['name']}: {problem}")


def _cables(inventory: Json, plugin_data: Json) -> Iterator[Json]:
    """Return each interface with what was told on it (``switch_...``), and what of that could not be read."""
    from ferroscope.hooks import helpers
    from ferroscope.lldp import frame, values

    for name, record in helpers.named(inventory):
        tlvs, unreadable = frame(helpers.lldp(name, record, plugin_data))
        told, malformed = values(tlvs)
        yield {"name": name, "mac": record.get("mac_address"), "lldp": told, "problems": [*unreadable, *malformed]}


def _row(cable: Json) -> tuple[Any, ...]:
    told = cable["lldp"]
    vlan = told.get("switch_port_untagged_vlan_id")
    return (
        cable["name"],
        cable["mac"],
        told.get("switch_system_name"),
        told.get("switch_port_id") or told.get("switch_port_description"),
        vlan,
        told.get("switch_port_mtu"),
        told.get("switch_chassis_id"),
    )
