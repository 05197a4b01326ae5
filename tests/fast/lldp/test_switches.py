"""Frames of real switches are read, and no TLV of theirs, however spoiled, costs another one's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope_client.lldp import Tlv, frame, link, neighbours, values
from tests.fast.lldp.switches import Switch, arista, cisco, hpe_and_dell, juniper, linux

SWITCHES = [switch for vendor in (cisco, arista, juniper, linux, hpe_and_dell) for switch in vendor.SWITCHES]
OUIS = ("00004b", "0012bb", "0080c2", "00120f", "f8b156", "ffffff")
every_switch = pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)


def tlvs(switch: Switch) -> list[Tlv]:
    found, problems = frame(switch.recorded)
    assert problems == []
    return found


def significant(switch: Switch) -> list[Tlv]:
    """Return the TLVs before the end of the frame."""
    return neighbours(tlvs(switch))[0]


@every_switch
def test_all_that_a_switch_says_is_read(switch: Switch) -> None:
    assert values(tlvs(switch)) == (switch.values, [])
    assert link(tlvs(switch)) == (switch.link, [])


def spoiled(value: bytes) -> Iterator[bytes]:
    """Yield the value cut off at every place, longer, and with every byte exchanged."""
    for size in range(len(value)):
        yield value[:size]
    for more in (b"\0", b"\0" * 8, b"\xff" * 3, value):
        yield value + more
    for place in range(len(value)):
        for byte in (0x00, 0x7F, 0xFF):
            yield value[:place] + bytes([byte]) + value[place + 1 :]


@every_switch
def test_a_spoiled_tlv_costs_no_other_one(switch: Switch) -> None:
    sound = significant(switch)
    for place, one in enumerate(sound):
        others = sound[:place] + sound[place + 1 :]
        kept, _ = values(others)
        known, _ = link(others)
        for value in spoiled(one.value):
            changed = [*sound[:place], Tlv(one.kind, value), *sound[place + 1 :]]
            found, _ = values(changed)
            assert {name for name in kept if not same(kept[name], found.get(name))} <= told_by(one, value), (one, value)
            end, _ = link(changed)
            lost = [
                name for name in ("switch_id", "port_id", "switch_info") if getattr(known, name) != getattr(end, name)
            ]
            assert all(getattr(known, name) is None for name in lost), (one, value)


def same(before: Any, now: Any) -> bool:
    """Whether a value is still there: lists of a repeated TLV may have got longer."""
    return before == now or (isinstance(before, list) and isinstance(now, list) and all(one in now for one in before))


def told_by(one: Tlv, value: bytes) -> set[str]:
    """Return what both the sound and the spoiled TLV say of themselves, which may replace what others say later."""
    return {*values([one])[0], *values([Tlv(one.kind, value)])[0]}


@every_switch
@pytest.mark.parametrize("length", [0, 1, 3, 4, 9, 507])
def test_tlvs_that_nobody_knows_cost_nothing(switch: Switch, length: int) -> None:
    sound = significant(switch)
    unknown = [Tlv(kind, bytes(length)) for kind in (9, 64, 126)]
    unknown += [Tlv(127, bytes.fromhex(oui) + b"\xfe" + bytes(length)) for oui in OUIS]
    for place in range(len(sound) + 1):
        assert values([*sound[:place], *unknown, *sound[place:]])[0] == switch.values
        assert link([*sound[:place], *unknown, *sound[place:]])[0] == switch.link


@every_switch
def test_a_frame_that_is_cut_off_gives_what_came_before(switch: Switch) -> None:
    sound = significant(switch)
    for size in range(len(sound)):
        found, problems = values(sound[:size])
        assert problems == []
        assert set(found) <= set(switch.values)


@every_switch
def test_what_is_said_twice_counts_once(switch: Switch) -> None:
    sound = significant(switch)
    for one in sound:
        assert link([*sound, one])[0] == switch.link
        found, problems = values([*sound, one])
        assert (set(found), problems) == (set(switch.values), [])


@every_switch
def test_the_switch_is_distinguished_from_other_neighbours(switch: Switch) -> None:
    """From the firmware of the NIC, a phone, or a hypervisor, whose frames come before or after its own."""
    host = [Tlv(1, b"\x04\x02\x00\x00\x00\xff\xff"), Tlv(2, b"\x03\x02\x00\x00\x00\xff\xff"), Tlv(3, b"\0\x78")]
    host += [Tlv(5, b"nic-firmware"), Tlv(7, bytes.fromhex("00800080"))]
    sound = significant(switch)
    frames = [[*sound, *host], [*sound, Tlv(0, b""), *host, Tlv(0, b"")]]
    if any(name in switch.values.get("switch_capabilities_enabled", ()) for name in ("Bridge", "Router")):
        frames += [[*host, *sound], [*host, Tlv(0, b""), Tlv(0, b""), *sound]]
    for one in frames:
        assert len(neighbours(one)) == 2
        assert values(one) == (switch.values, [])
        assert link(one) == (switch.link, [])


def test_no_switch_is_listed_twice() -> None:
    assert len({switch.name for switch in SWITCHES}) == len(SWITCHES)
