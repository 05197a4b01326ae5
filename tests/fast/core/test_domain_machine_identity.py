"""Which data contradicts a node's last inspection, and which may be of the same machine."""

from __future__ import annotations

import msgspec

from ferroscope.hardware.machine_identity import (
    MachineIdentity,
    behind_bmc,
    contradictions,
    decode_identity,
    identify,
    remember_behind_bmc,
)
from tests.support import examples
from tests.support.rows import each

UUID, OTHER = "4c4c4544-0042-3510-8054-b7c04f4d3132", "11111111-2222-4333-8444-555555555555"
MACS = ("52:54:00:00:00:01", "52:54:00:00:00:02")
KNOWN = MachineIdentity("ABC123", UUID, MACS)


def found(now: MachineIdentity, before: MachineIdentity = KNOWN) -> list[str]:
    return [difference.what for difference in contradictions(before, now)]


@each(
    ("changes", "differs"),
    [
        ({}, []),
        ({"serial": "XYZ789"}, ["serial"]),
        ({"uuid": OTHER}, ["uuid"]),
        ({"serial": "XYZ789", "uuid": OTHER, "macs": ("52:54:00:00:00:09",)}, ["serial", "uuid", "macs"]),
        ({"macs": MACS[1:]}, []),  # one of two NICs was removed
        ({"macs": (*MACS, "52:54:00:00:00:03")}, []),
        ({"macs": ("52:54:00:00:00:09",)}, ["macs"]),
        ({"uuid": None}, []),  # the serial number still matches
        ({"serial": None}, []),
        ({"serial": None, "uuid": None}, ["serial", "uuid"]),  # whoever leaves them out does not get around the check
        ({"uuid": "44454c4c-4200-1035-8054-b7c04f4d3132"}, []),  # the other byte order, of older firmware
    ],
)
def test_what_contradicts(changes: dict[str, object], differs: list[str]) -> None:
    assert found(msgspec.structs.replace(KNOWN, **changes)) == differs


def test_what_was_never_reported_cannot_be_contradicted() -> None:
    bare = MachineIdentity(macs=MACS)
    assert found(KNOWN, before=bare) == []
    assert found(bare, before=bare) == []
    assert found(KNOWN, before=MachineIdentity()) == []


@each(
    "serial",
    [None, 7, "", "  ", "To Be Filled By O.E.M.", "to be filled by o.e.m.", "Default string", "System Serial Number",
     "0", "00000000", "0000-0000", "XXXXXXX", "FFFFFFFF", "N/A", "None", "0123456789", "x" * 200,
     "To be filled by O.E.M", "To-Be-Filled-By-OEM", "O.E.M.", "Not Applicable", "not_available", "<none>", "[Unknown]",
     "....", "*****", "0123456789ABCDEF", "12345678", "1234567890", "Base Board Serial Number", "Empty", "Enter Serial",
     "SystemSerialNumb"],
)  # fmt: skip
def test_placeholders_are_not_serial_numbers(serial: object) -> None:
    """Reports: https://github.com/openshift/assisted-installer-agent/issues/354,
    https://github.com/xcat2/xcat-core/issues/5428, https://github.com/FOGProject/fogproject/issues/198.
    """
    assert identify({"serial_number": serial}, None, MACS).serial is None


@each(
    "uuid",
    [None, 7, "", "Not Specified", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
     "03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009", "nonsense",
     "12345678-1234-5678-90AB-CDDEEFAABBCC", "78563412-3412-7856-90ab-cddeefaabbcc",
     "03020100-0504-0706-0809-0a0b0c0d0e0f", "00010203-0405-0607-0809-0a0b0c0d0e0f",
     "4C4C4544-0000-2010-8020-80C04F202020", "20202020-2020-2020-2020-202020202020",
     "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE", "00000001-ffff-ffff-ffff-ffffffffffff"],
)  # fmt: skip
def test_placeholders_are_not_system_uuids(uuid: object) -> None:
    """osquery/osquery#8887."""
    assert identify({"uuid": uuid}, None, MACS).uuid is None
    assert identify(None, uuid, MACS).uuid is None


@each("serial", ["CN7016334S00", "1234ABC", "00000001", "0000-1A", "J1-234", "OEM-4711", "BCDFGHJ", "serial-7"])
def test_what_only_looks_like_a_placeholder_is_a_serial_number(serial: str) -> None:
    assert identify({"serial_number": serial}, None, MACS).serial == serial


def test_an_identity_survives_being_stored_and_nonsense_is_none() -> None:
    known = identify({"serial_number": " ABC123 ", "uuid": UUID.upper()}, None, MACS[::-1])
    assert known == KNOWN
    assert decode_identity(msgspec.json.decode(msgspec.json.encode(known))) == KNOWN
    for nonsense in (None, {}, [], "x", {"serial": "x"}, {"macs": "x"}):
        assert decode_identity(nonsense) is None


def test_many_macs_are_cut_alike_on_both_sides() -> None:
    many = [f"52:54:00:00:01:{number:02x}" for number in range(200)]
    assert found(identify(None, None, many[::-1]), before=identify(None, None, many)) == []


@each("uuid", ["03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009"])
def test_a_placeholder_that_an_earlier_release_has_stored_is_none(uuid: str) -> None:
    """Else all machines that have it would be taken for one."""
    document = {"serial": "To be filled by O.E.M.", "uuid": uuid}
    assert decode_identity({"macs": [], **document}) == MachineIdentity()
    node = examples.node()
    remember_behind_bmc(node, document)
    assert behind_bmc(node) is None
