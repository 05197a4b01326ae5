"""Addresses of NICs: BOOTIF, as boot loaders and ramdisks spell it, and what BMCs show."""

from __future__ import annotations

from ferroscope_client.core.mac_addresses import bmc_mac, boot_mac, identifying_mac
from tests.support.rows import each

MAC = "aa:bb:cc:00:00:01"
DERIVED = "00:02:c9:ab:cd:ef"
GUID = "00:02:c9:03:00:ab:cd:ef"
INFINIBAND = f"80:00:02:08:fe:80:00:00:00:00:00:00:{GUID}"


def spellings(address: str) -> list[str]:
    """Return the ways to write an address, with the hardware type and without, as they are found in the field."""
    kinds = [f"{kind}:{address}" for kind in ("01", "06", "20", "00")]
    return [
        text
        for one in (address, *kinds)
        for spelled in (one, one.replace(":", "-"), one.replace(":", ""))
        for text in (spelled, spelled.upper(), f"BOOTIF={spelled}", f" {spelled}\n", f'"{spelled}"')
    ]


@each("text", [*spellings(MAC), "aabb.cc00.0001"])
def test_an_ethernet_address_is_read_in_every_spelling(text: str) -> None:
    assert boot_mac(text) == MAC


@each("text", [*spellings(GUID), *spellings(INFINIBAND)])
def test_an_infiniband_address_gives_the_mac_of_its_guid(text: str) -> None:
    """https://github.com/Solvik/netbox-agent/issues/373."""
    assert boot_mac(text) == "00:02:c9:ab:cd:ef"


@each(
    "text",
    [
        None, 5, "", "eth0", "01", MAC[:-3], MAC + ":01:02:03:04", INFINIBAND[:-6], "g" + MAC[1:], f"{MAC} {MAC}",
        "aa::bb:cc:00:00:01", "a:b:c:0:0:1", "x" * 10_000, "01-" * 10_000, [MAC], f"BOOTIF={MAC}0",
        "\N{ARABIC-INDIC DIGIT ZERO}1-aa-bb-cc-00-00-01",
    ],
)  # fmt: skip
def test_anything_else_is_none(text: object) -> None:
    assert boot_mac(text) is None


@each(
    ("address", "protocol", "mac"),
    [
        (MAC, None, MAC), (MAC, "Ethernet", MAC), (MAC, "InfiniBand", MAC),
        (MAC, "FibreChannel", None), (MAC, "FibreChannelOverEthernet", None), (MAC, "iSCSI", None),
        (GUID, None, DERIVED), (GUID, "InfiniBand", DERIVED), (INFINIBAND, None, DERIVED),
        ("00:02:c9:ff:fe:ab:cd:ef", "", DERIVED), ("00:02:c9:01:01:ab:cd:ef", "infiniband", DERIVED),
        (GUID, "Ethernet", None), (GUID, "FibreChannel", None), ("00:11:75:01:01:ab:cd:ef", None, None),
        ("21:00:F4:E9:D4:00:11:22", None, None), ("20:00:00:00:C9:F8:03:CC", None, None),
        ("10:00:00:90:fa:00:11:22", "", None), ("50:01:43:80:00:00:11:22", None, None),
        ("01:00:5e:00:00:01", None, None),
        ("ff:ff:ff:ff:ff:ff", "Ethernet", None), ("00:00:00:00:00:00", None, None),
        (f"01-{MAC}", None, None), ("N/A", None, None), (None, None, None), (MAC, 5, None),
    ],
)  # fmt: skip
def test_a_wwn_of_fibre_channel_is_no_mac(address: object, protocol: object, mac: str | None) -> None:
    """An HBA is among the Ethernet interfaces, of QLogic or Emulex.

    Reports: https://github.com/metal3-io/baremetal-operator/issues/999,
    https://github.com/metal3-io/ironic-image/issues/314, https://github.com/bb-Ricardo/netbox-sync/issues/121.
    """
    assert bmc_mac(address, protocol) == mac


@each("mac", ["01:00:5e:00:00:01", "33:33:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "no MAC"])
def test_an_address_of_a_group_identifies_no_machine(mac: str) -> None:
    assert identifying_mac(mac) is None
