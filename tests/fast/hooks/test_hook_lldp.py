"""``parse-lldp`` and ``local-link-connection`` with what ports and NICs already have."""

from __future__ import annotations

from typing import Any

from ferroscope.core.model import Severity
from tests.fast.hooks.runs import Run, machine, port, run
from tests.fast.lldp.switches import cisco
from tests.support.rows import each

MAC = "aa:bb:cc:00:00:01"
SWITCH = cisco.SWITCHES[0]
PADDED = next(switch for switch in cisco.SWITCHES if switch.name == "nul-padded")
FIRMWARE = [[1, "0402000000ffff"], [2, "0302000000ffff"], [3, "0078"], [5, "6e6963"], [0, ""]]


def run_with(recorded: list[Any], known: dict[str, Any]) -> Run:
    inventory = machine(interfaces=[{"name": "eth0", "mac_address": MAC, "lldp": recorded}])
    ports = [port(MAC, local_link_connection=known)]
    return run(["validate-interfaces", "ports", "parse-lldp", "local-link-connection"], inventory, ports=ports)


def link(result: Run) -> dict[str, Any]:
    return result.ports()[MAC].local_link_connection


@each(
    ("before", "after"),
    [
        ({}, "Gi1/0/1"),
        ({"port_id": "Gi1/0/1\0\0\0"}, "Gi1/0/1"),  # an earlier release kept the padding
        ({"port_id": "Gi9/9"}, "Gi9/9"),  # set by an operator
        ({"port_id": ""}, ""),
        ({"port_id": 7}, 7),
    ],
)
def test_padding_is_not_stored_and_replaced_where_it_was(before: dict[str, Any], after: object) -> None:
    result = run_with(PADDED.recorded, before)
    assert link(result) == {"switch_id": PADDED.link.switch_id, "port_id": after, "switch_info": "sw-22"}
    assert all(note.severity is Severity.INFO for note in result.notes)


def test_the_switch_counts_where_a_nic_has_several_neighbours() -> None:
    result = run_with(FIRMWARE + SWITCH.recorded, {})
    assert link(result)["switch_id"] == SWITCH.link.switch_id
    (found,) = result.plugin_data["parsed_lldp"].values()
    assert found["switch_system_name"] == SWITCH.link.switch_info
    (note,) = [note for note in result.notes if note.step == "parse-lldp"]
    assert "2 LLDP neighbours" in note.message
    assert str(SWITCH.link.switch_info) in note.message


@each(
    ("kept", "said"),
    [
        ({"eth0": "Operation not supported"}, "no LLDP from eth0 (Operation not supported): the firmware"),
        ({}, None),
        ("x", None),
        ([1], None),
    ],
)
def test_firmware_that_keeps_lldp_is_on_the_timeline(kept: object, said: str | None) -> None:
    """https://github.com/lldpd/lldpd/issues/444: nothing else says why the switch's port is unknown."""
    result = run(["ramdisk-error"], machine(), plugin_data={"lldp_kept": kept})
    assert [note.message.startswith(said or "-") for note in result.notes] == ([True] if said else [])
