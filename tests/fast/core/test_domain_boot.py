"""How a machine comes to its ramdisk: every combination that means something."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.core.boot import Boot, BootError, choose
from ferroscope.core.model import Node
from tests.support.rows import each

ISO = "http://192.0.2.1/ramdisk.iso"


def way(driver: str = "redfish", *, attributes: dict[str, Any] | None = None, **options: Any) -> Boot:
    node = Node(uuid="x", driver=driver, attributes=attributes or {})
    able = driver == "redfish"
    known: dict[str, Any] = {
        "drivers": ("redfish", "ipmi", "acme"),
        "manage_boot": True,
        "iso": ISO,
        "boots_itself": able,
        "knows_hardware": able,
        "require_managed": False,
    }
    return choose(node, **known | options)


def test_a_driver_that_can_boots_the_ramdisk_itself() -> None:
    assert way() is Boot.VIRTUAL_MEDIA
    assert way(require_managed=True) is Boot.VIRTUAL_MEDIA


def test_without_an_image_or_such_a_driver_it_is_the_network() -> None:
    assert way(iso="") is Boot.NETWORK
    assert way("ipmi") is Boot.NETWORK


def test_a_node_may_ask_for_the_network() -> None:
    assert way(attributes={"boot_interface": "ipxe"}) is Boot.NETWORK


def test_a_node_may_insist_on_virtual_media() -> None:
    assert way(attributes={"boot_interface": "redfish-virtual-media"}) is Boot.VIRTUAL_MEDIA


@each(
    ("driver", "options", "said"),
    [
        ("redfish", {"iso": ""}, "ramdisk_iso"),
        ("ipmi", {}, "redfish-virtual-media"),
    ],
)
def test_virtual_media_that_cannot_be_is_no_network_boot(driver: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BootError, match=said):
        way(driver, attributes={"boot_interface": "redfish-virtual-media"}, **options)


def test_the_interfaces_of_any_driver_have_its_name() -> None:
    able: dict[str, Any] = {"boots_itself": True, "knows_hardware": True}
    assert way("acme", attributes={"boot_interface": "acme-virtual-media"}, **able) is Boot.VIRTUAL_MEDIA
    assert way("acme", attributes={"inspect_interface": "acme"}, **able) is Boot.OUT_OF_BAND
    with pytest.raises(BootError, match="acme-virtual-media"):
        way("redfish", attributes={"boot_interface": "acme-virtual-media"})
    with pytest.raises(BootError, match="inspect_interface"):
        way("redfish", attributes={"inspect_interface": "acme"})


def test_an_image_for_uefi_http_is_booted_by_virtual_media() -> None:
    assert way(attributes={"boot_interface": "redfish-https"}) is Boot.VIRTUAL_MEDIA
    with pytest.raises(BootError, match="ramdisk_iso"):
        way(attributes={"boot_interface": "redfish-https"}, iso="")


@each("name", ["http", "http-ipxe"])
def test_http_boot_after_dhcp_is_a_boot_from_the_network(name: str) -> None:
    assert way(attributes={"boot_interface": name}) is Boot.NETWORK


def test_the_interfaces_of_a_driver_may_be_named_after_its_protocol_too() -> None:
    able: dict[str, Any] = {"boots_itself": True, "knows_hardware": True, "drivers": ("redfish", "idrac")}
    assert way("idrac", attributes={"boot_interface": "idrac-redfish-virtual-media"}, **able) is Boot.VIRTUAL_MEDIA
    assert way("idrac", attributes={"inspect_interface": "idrac-redfish"}, **able) is Boot.OUT_OF_BAND
    with pytest.raises(BootError, match="inspect_interface"):
        way("redfish", attributes={"inspect_interface": "idrac-redfish"}, **able)


@each(("driver", "attributes"), [("ipmi", {}), ("redfish", {"boot_interface": "pxe"})])
def test_managed_boot_can_be_required(driver: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(BootError, match="require_managed_boot"):
        way(driver, attributes=attributes, require_managed=True)


def test_the_operator_boots_where_the_caller_says_so() -> None:
    assert way(manage_boot=False, require_managed=True) is Boot.OPERATOR


def test_the_bmc_is_asked_instead_of_a_ramdisk() -> None:
    assert way(attributes={"inspect_interface": "redfish"}, require_managed=True) is Boot.OUT_OF_BAND
    assert way(attributes={"inspect_interface": "agent"}) is Boot.VIRTUAL_MEDIA


@each("driver", ["ipmi", "fake-hardware"])
def test_only_a_driver_that_knows_the_hardware_can_be_asked(driver: str) -> None:
    with pytest.raises(BootError, match="inspect_interface"):
        way(driver, attributes={"inspect_interface": "redfish"})
