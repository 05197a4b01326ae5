"""BOOTIF: the NIC that booted, as boot loaders and ramdisks spell it."""

from __future__ import annotations

from ferroscope.core.mac_addresses import boot_mac
from tests.support.rows import each

MAC = "aa:bb:cc:00:00:01"
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
