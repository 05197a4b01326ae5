"""LLDP: what switches say is read; what cannot be read is left out and told of; nothing raises."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ferroscope_client.lldp import MAX_TLVS, MAX_VALUE_BYTES, SwitchLink, Tlv, frame, link, values
from ferroscope_sim.inventory import document
from tests.support.rows import each

CHASSIS = [1, "0452540000dd01"]
PORT = [2, "05457468312f37"]
NAME = [5, "6c656166"]


def told(*tlvs: list[Any]) -> dict[str, Any]:
    found, problems = values(frame(list(tlvs))[0])
    assert problems == []
    return found


def problem(tlv: list[Any]) -> str:
    found, problems = values(frame([tlv])[0])
    assert found == {}
    assert len(problems) == 1
    return problems[0]


def test_a_switch_tells_who_it_is() -> None:
    assert told(CHASSIS, PORT, NAME, [4, "746f207468652072"], [6, "41636d65"]) == {
        "switch_chassis_id": "52:54:00:00:dd:01",
        "switch_port_id": "Eth1/7",
        "switch_system_name": "leaf",
        "switch_port_description": "to the r",
        "switch_system_description": "Acme",
    }


@each(
    ("tlv", "name", "value"),
    [
        ([1, "0772616b31"], "switch_chassis_id", "rak1"),
        ([1, "0501c0000201"], "switch_chassis_id", "192.0.2.1"),
        ([1, "050220010db8000000000000000000000001"], "switch_chassis_id", "2001:db8::1"),
        ([2, "0352540000dd02"], "switch_port_id", "52:54:00:00:dd:02"),
        ([2, "0401c0000201"], "switch_port_id", "192.0.2.1"),
        ([8, "0501c0000201020000000100"], "switch_mgmt_addresses", ["192.0.2.1"]),
        ([8, "110200000000000000000000000000000001"], "switch_mgmt_addresses", ["::1"]),
        ([8, "0706525400dd0001"], "switch_mgmt_addresses", ["52:54:00:dd:00:01"]),
        ([127, "0080c2010064"], "switch_port_untagged_vlan_id", 100),
        ([127, "0080c20300640770726976617465"], "switch_port_vlans", [{"name": "private", "id": 100}]),
        ([127, "0080c20402888e"], "switch_protocol_identities", ["888e"]),
        ([127, "0080c2060001"], "switch_port_management_vlan_id", 1),
        ([127, "00120f042400"], "switch_port_mtu", 9216),
    ],
)
def test_a_tlv_is_read(tlv: list[Any], name: str, value: Any) -> None:
    assert told(tlv) == {name: value}


def test_of_what_comes_once_the_first_counts_and_of_the_rest_all() -> None:
    assert told([5, "61"], [5, "62"], [8, "0501c0000201"], [8, "0501c0000202"]) == {
        "switch_system_name": "a",
        "switch_mgmt_addresses": ["192.0.2.1", "192.0.2.2"],
    }


@each("tlv", [[0, ""], [3, "0078"], [9, "00"], [127, "00120f99"], [127, "0090ab01ff"], [8, "026301"]])
def test_what_nobody_asks_for_or_knows_says_nothing(tlv: list[Any]) -> None:
    assert told(tlv) == {}


@each(
    ("tlv", "words"),
    [
        ([1, ""], "type 1 is too short"),
        ([1, "04aabb"], "too short"),
        ([1, "09616263"], "unknown subtype"),
        ([1, "0563aa"], "unknown subtype"),
        ([2, "0401c000"], "too short"),
        ([5, "ff"], "UTF-8"),
        ([7, "00"], "too short"),
        ([8, "0501c0"], "too short"),
        ([127, "0080"], "too short"),
        ([127, "0080c20300"], "too short"),
        ([127, "00120f01"], "too short"),
    ],
)
def test_a_tlv_that_cannot_be_read_is_reported(tlv: list[Any], words: str) -> None:
    assert words in problem(tlv)


@each(
    ("tlv", "found"),
    [
        ([7, "0014"], {"switch_capabilities_support": ["Bridge", "Router"]}),
        ([127, "0080c2020600"], {"switch_port_protocol_vlan_enabled": True, "switch_port_protocol_vlan_support": True}),
        ([127, "0080c20300c80361"], {"switch_port_vlans": [{"name": "a", "id": 200}]}),
        ([127, "0080c20300c8"], {"switch_port_vlans": [{"name": "", "id": 200}]}),
        (
            [127, "00120f010300"],
            {"switch_port_autonegotiation_enabled": True, "switch_port_autonegotiation_support": True},
        ),
    ],
)
def test_what_comes_before_the_cut_is_read_and_the_cut_is_reported(tlv: list[Any], found: dict[str, Any]) -> None:
    read, problems = values(frame([tlv])[0])
    assert read == found
    assert "too short" in problems[0]


@each(
    ("tlv", "found"),
    [
        ([7, "0004000400"], {f"switch_capabilities_{kind}": ["Bridge"] for kind in ("support", "enabled")}),
        ([2, "054769312f302f31000000"], {"switch_port_id": "Gi1/0/1"}),
        ([2, "0747000102ff"], {"switch_port_id": "47000102ff"}),
        ([1, "0430323a30303a30303a30303a30303a4141"], {"switch_chassis_id": "02:00:00:00:00:aa"}),
        ([5, "6c6561660000"], {"switch_system_name": "leaf"}),
        ([5, "6bfc636865"], {"switch_system_name": "k\N{REPLACEMENT CHARACTER}che"}),
        ([127, "00120f04240000ff"], {"switch_port_mtu": 9216}),
        ([127, "0080c2010064ffff"], {"switch_port_untagged_vlan_id": 100}),
    ],
)
def test_what_is_too_much_or_filled_up_costs_nothing(tlv: list[Any], found: dict[str, Any]) -> None:
    assert told(tlv) == found


@each(
    ("number", "name"),
    [
        (30, "1000BASE-T full duplex"),
        (53, "1000BASE-PX20U"),
        (54, "10GBASE-T"),
        (58, "10GBASE-KR"),
        (70, "40GBASE-KR4"),
        (78, "100GBASE-ER4"),
        (88, "25GBASE-CR"),
        (94, "25GBASE-T"),
        (98, "100GBASE-CR4"),
        (104, "5GBASE-T"),
        (105, "MAU type 105"),
        (65535, "MAU type 65535"),
    ],
)
def test_types_of_links_have_the_names_of_iana_or_their_number(number: int, name: str) -> None:
    assert told([127, f"00120f01030000{number:04x}"])["switch_port_mau_type"] == name


@each(
    ("recorded", "words"),
    [
        ("0452", "not a list but str"),
        ({"1": "04"}, "not a list but dict"),
        ([1], "not a pair"),
        ([[1, "04", "x"]], "not a pair"),
        ([["1", "04"]], "no type"),
        ([[True, "04"]], "no type"),
        ([[128, "04"]], "no type"),
        ([[1, None]], "hexadecimal"),
        ([[1, "0"]], "hexadecimal"),
        ([[1, "zz"]], "hexadecimal"),
        ([[1, "0\N{FULLWIDTH DIGIT FOUR}"]], "hexadecimal"),
        ([[1, "00" * (MAX_VALUE_BYTES + 1)]], "more than 511 bytes"),
    ],
)
def test_a_record_that_is_no_frame_is_reported(recorded: Any, words: str) -> None:
    tlvs, problems = frame(recorded)
    assert tlvs == []
    assert words in problems[0]


def test_a_frame_is_bounded() -> None:
    tlvs, problems = frame([CHASSIS] * (MAX_TLVS + 5))
    assert len(tlvs) == MAX_TLVS
    assert problems == ["5 TLVs after the first 1024 are ignored"]
    assert frame([[6, "61" * MAX_VALUE_BYTES]])[0] == [Tlv(6, b"a" * MAX_VALUE_BYTES)]
    assert frame(None) == ([], [])


def test_a_link_is_the_switch_its_port_and_its_name() -> None:
    assert link(frame([CHASSIS, PORT, NAME])[0]) == (SwitchLink("52:54:00:00:dd:01", "Eth1/7", "leaf"), [])


def test_a_switch_without_a_mac_has_no_id_and_a_bad_tlv_takes_nothing_from_the_others() -> None:
    found, problems = link(frame([[1, "0772616b31"], PORT, [5, "ff"]])[0])
    assert found == SwitchLink(None, "Eth1/7", None)
    assert len(problems) == 1


def test_everything_that_simulated_switches_send_is_read() -> None:
    seen = set()
    for index in range(20):
        for nic in document(index)["inventory"]["interfaces"]:
            tlvs, unreadable = frame(nic["lldp"])
            found, malformed = values(tlvs)
            assert unreadable == malformed == []
            seen.update(found)
    assert len(seen) > 10


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary().map(bytes.hex), st.lists, max_leaves=30))
def test_no_record_raises(recorded: Any) -> None:
    tlvs, _ = frame(recorded)
    values(tlvs)
    link(tlvs)


@given(st.lists(st.tuples(st.integers(0, 127) | st.just(127), st.binary(max_size=40)).map(lambda pair: Tlv(*pair))))
def test_no_frame_raises(tlvs: list[Tlv]) -> None:
    values(tlvs)
    link(tlvs)


@given(st.sampled_from(["0080c2", "00120f"]), st.integers(0, 8), st.binary(max_size=20))
def test_no_organizational_tlv_raises(oui: str, subtype: int, rest: bytes) -> None:
    values([Tlv(127, bytes.fromhex(oui) + bytes([subtype]) + rest)])
