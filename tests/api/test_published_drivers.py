"""Drivers, their interfaces, and power, answer as the Bare Metal service does.

Each request here was also sent to a real Ironic 39. Each test names the section of its API reference, or of the history
of its microversions. Texts are those of Ironic; where ours go on after them, only the beginning is compared.
Differences that are deliberate are in docs/reference/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import IdracBmc, RedfishBmc
from ferroscope.core.states import Event
from tests.api.published import replace
from tests.api.service import Service, fault

# Interfaces. Source: "Update Node", "Validate Node", "List drivers", "Show driver details".

KINDS = [
    "bios",
    "boot",
    "console",
    "deploy",
    "firmware",
    "inspect",
    "management",
    "network",
    "power",
    "raid",
    "rescue",
    "storage",
    "vendor",
]


def test_unknown_interfaces_are_refused(service: Service) -> None:
    kind = "boot"
    wanted = f"Could not find the following interface in the 'ironic.hardware.interfaces.{kind}' entrypoint: odd."
    path = f"/v1/nodes/{service.enrol()}"
    changed = service.bare_metal.patch(path, replace(f"/{kind}_interface", "odd"))
    created = service.bare_metal.post("/v1/nodes", {"driver": "sim", f"{kind}_interface": "odd"})
    for answer in (changed, created):
        assert answer.status_code == 400
        assert fault(answer).startswith(wanted)


def test_each_interface_of_a_driver_can_be_set_and_reset(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol()}"
    driver = service.bare_metal.get("/v1/drivers/fake-hardware").json
    for kind in KINDS:
        default = driver[f"default_{kind}_interface"]
        assert driver[f"enabled_{kind}_interfaces"][0] == default
        assert service.bare_metal.get(path).json[f"{kind}_interface"] == default
        for name in driver[f"enabled_{kind}_interfaces"]:
            answer = service.bare_metal.patch(path, replace(f"/{kind}_interface", name))
            assert (answer.status_code, answer.json[f"{kind}_interface"]) == (200, name)
        node = service.bare_metal.patch(path, {"op": "remove", "path": f"/{kind}_interface"}).json
        assert node[f"{kind}_interface"] == default


def test_an_interface_stays_valid_when_the_driver_changes(with_drivers: Callable[..., Service]) -> None:
    service = with_drivers(fake=FakeBmc(), ipmi=IpmiBmc())
    path = f"/v1/nodes/{service.enrol(driver='fake', deploy_interface='fake')}"
    answer = service.bare_metal.patch(path, replace("/driver", "ipmi"))
    assert (answer.status_code, fault(answer)) == (
        400,
        "deploy interface implementation 'fake' is not supported by hardware type ipmi.",
    )
    node = service.bare_metal.patch(f"{path}?reset_interfaces=true", replace("/driver", "ipmi")).json
    assert (node["deploy_interface"], node["power_interface"], node["boot_interface"]) == ("noop", "ipmitool", "ipxe")


PUBLISHED = {
    "redfish": {
        "bios": ["no-bios", "redfish"],
        "boot": ["http", "http-ipxe", "ipxe", "pxe", "redfish-https", "redfish-virtual-media"],
        "console": ["fake-graphical", "ipmitool-socat", "no-console", "redfish-graphical"],
        "deploy": ["anaconda", "ansible", "autodetect", "bootc", "custom-agent", "direct", "ramdisk"],
        "firmware": ["no-firmware", "redfish"],
        "inspect": ["agent", "no-inspect", "redfish"],
        "management": ["noop", "redfish"],
        "network": ["flat", "ironic-networking", "neutron", "noop"],
        "power": ["redfish"],
        "raid": ["agent", "no-raid", "redfish"],
        "storage": ["cinder", "external", "noop"],
        "vendor": ["no-vendor", "redfish"],
    },
    "idrac": {
        "bios": ["idrac-redfish", "no-bios", "redfish"],
        "boot": ["http", "http-ipxe", "idrac-redfish-virtual-media", "ipxe", "pxe", "redfish-https"],
        "firmware": ["no-firmware", "redfish"],
        "inspect": ["agent", "idrac-redfish", "no-inspect"],
        "management": ["idrac-redfish"],
        "power": ["idrac-redfish", "redfish"],
        "raid": ["agent", "idrac-redfish", "no-raid"],
        "vendor": ["idrac-redfish", "no-vendor", "redfish"],
    },
    "ipmi": {
        "console": ["ipmitool-socat", "no-console"],
        "management": ["ipmitool", "noop"],
        "power": ["ipmitool"],
        "vendor": ["ipmitool", "no-vendor"],
    },
}


@pytest.mark.parametrize("driver", PUBLISHED)
def test_the_names_of_a_hardware_type_are_accepted_and_stored(
    with_drivers: Callable[..., Service], driver: str
) -> None:
    service = with_drivers(redfish=RedfishBmc(), idrac=IdracBmc(), ipmi=IpmiBmc())
    path = f"/v1/nodes/{service.enrol(driver=driver)}"
    for kind, names in PUBLISHED[driver].items():
        for name in names:
            changed = service.bare_metal.patch(path, replace(f"/{kind}_interface", name))
            assert (changed.status_code, changed.json.get(f"{kind}_interface")) == (200, name), changed.text
        other = service.bare_metal.patch(path, replace(f"/{kind}_interface", "fake"))
        assert other.status_code == 400, other.text


def test_a_client_finds_a_new_node_valid(service: Service) -> None:
    """openstacksdk's ``validate_node`` requires boot, deploy and power."""
    checks = service.bare_metal.get(f"/v1/nodes/{service.enrol()}/validate").json
    assert set(checks) == set(KINDS) - {"vendor"}
    assert [kind for kind, check in checks.items() if check["result"] is not True] == []


def test_what_is_not_supported_is_not_valid(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol(raid_interface='no-raid', inspect_interface='no-inspect')}"
    checks = service.bare_metal.get(f"{path}/validate").json
    for kind in ("raid", "inspect"):
        assert checks[kind] == {
            "result": False,
            "reason": f"Driver fake-hardware does not support {kind} (disabled or not implemented).",
        }
    answer = service.bare_metal.put(f"{path}/states/provision", {"target": "inspect"})
    assert (answer.status_code, fault(answer)) == (400, checks["inspect"]["reason"])


# Power and boot device. Source: "Change Node Power State" (soft since 1.27), "Set Boot Device", "Get Boot Device".


@pytest.mark.parametrize(("target", "wanted"), [("soft power off", "power off"), ("soft rebooting", "power on")])
def test_soft_power_states_are_accepted_with_a_timeout(service: Service, target: str, wanted: str) -> None:
    ident = service.enrol()
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": target, "timeout": 5})
    assert (answer.status_code, answer.headers["Location"].rpartition("/v1/")[2]) == (202, f"nodes/{ident}/states")
    assert service.bare_metal.get(f"/v1/nodes/{ident}/states").json["target_power_state"] == wanted
    (request,) = service.pending(ident)
    assert (request.event, request.payload) == (Event.SET_POWER, {"target": target, "timeout": 5})


def test_a_driver_without_soft_power_says_so(with_drivers: Callable[..., Service]) -> None:
    class Hard:
        properties: dict[str, str] = {}

        def validate(self, _node: Any) -> None: ...

    service = with_drivers(hard=Hard())
    path = f"/v1/nodes/{service.enrol(driver='hard')}/states/power"
    answer = service.bare_metal.put(path, {"target": "soft power off"})
    assert (answer.status_code, fault(answer)) == (
        400,
        "The driver hard does not support the power state, soft power off",
    )


@pytest.mark.parametrize("target", ["power off", "soft power off"])
def test_a_node_that_must_stay_on_is_not_powered_off(service: Service, target: str) -> None:
    path = f"/v1/nodes/{service.enrol(disable_power_off=True)}/states/power"
    answer = service.bare_metal.put(path, {"target": target})
    assert answer.status_code == 409
    assert fault(answer).startswith(f"Failed to set node power state to {target}")


def test_unknown_power_states_are_refused(service: Service) -> None:
    ident = service.enrol()
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "explode"})
    assert answer.status_code == 400
    assert fault(answer).startswith(
        f'The requested action "explode" can not be performed on node "{ident}" while it is in state "None".'
    )
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "power on", "timeout": 0})
    assert (answer.status_code, fault(answer)) == (400, "timeout has to be positive integer")


def test_power_can_be_set_while_the_machine_is_awaited(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["provision_state"] == "inspect wait"
    assert service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "power on"}).status_code == 202
    assert [request.event for request in service.pending(ident)] == [Event.SET_POWER]


def test_the_boot_device_is_what_the_driver_says_until_one_is_set(service: Service) -> None:
    ident = service.enrol()
    path = f"/v1/nodes/{ident}/management/boot_device"
    assert service.bare_metal.get(path).json == {"boot_device": "pxe", "persistent": False}
    service.alter(ident, internal={"reported_boot_device": {"boot_device": "disk", "persistent": True}})
    assert service.bare_metal.get(path).json == {"boot_device": "disk", "persistent": True}
    service.bare_metal.put(path, {"boot_device": "cdrom"})
    assert service.bare_metal.get(path).json == {"boot_device": "cdrom", "persistent": False}


def test_each_driver_has_its_boot_devices(with_drivers: Callable[..., Service]) -> None:
    service = with_drivers(ipmi=IpmiBmc())
    path = f"/v1/nodes/{service.enrol(driver='ipmi')}/management/boot_device"
    assert service.bare_metal.get(f"{path}/supported").json == {
        "supported_boot_devices": ["pxe", "disk", "cdrom", "bios", "safe"]
    }
    answer = service.bare_metal.put(path, {"boot_device": "wanboot"})
    assert answer.status_code == 400
    assert fault(answer).startswith("Invalid boot device wanboot specified.")
    assert service.bare_metal.get(path).json == {"boot_device": None, "persistent": None}
