"""The inspection rules that Kayobe creates by default, and those that it has for IPMI and Redfish, restated.

Source: openstack/kayobe, ``ansible/inventory/group_vars/all/inspector`` of August 2026; its operations, arguments and
regular expressions are kept, for they are what is to be accepted. It finds out whether a placeholder has a value by a
regular expression of the placeholder itself: in Ironic, one without a value stays as it was written.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ferroscope.core.model import Document

_NIC: Final = "all_interfaces.eth0"
_PORT: Final = f"{{{_NIC}.lldp_processed.switch_port_description}}"
# What switches send as a description although it is the name of the port.
_PORT_NAMES: Final = ("GigabitEthernet", "TenGigabitEthernet", "twentyFiveGigE", "fortyGigE", "Port-channel")


def _set(path: str, value: Any) -> Document:
    return {"op": "set-attribute", "args": {"path": path, "value": value}}


def _empty(placeholder: str) -> Document:
    return {"op": "is-empty", "args": {"value": placeholder}}


def _has_value(placeholder: str, regex: str) -> Document:
    return {"op": "!matches", "args": {"value": placeholder, "regex": regex}}


def _rule(description: str, conditions: list[Document], *actions: Document, **more: Any) -> Document:
    return {"description": description, "conditions": conditions, "actions": list(actions), **more}


def _driver_info(*fields: tuple[str, Any], **more: Any) -> Document:
    """Return a rule that sets fields of ``driver_info`` that are empty."""
    conditions = [_empty(f"{{node.driver_info[{name}]}}") for name, _ in fields]
    actions = [_set(f"/driver_info/{name}", value) for name, value in fields]
    return _rule(f"default of {fields[0][0]}", conditions, *actions, **more)


def _vendor(key: str) -> Document:
    place = f"{{inventory[system_vendor][{key}]}}"
    conditions = [
        _has_value("{inventory[system_vendor]}", "{inventory\\[system_vendor\\]}"),
        _has_value(place, f"{{inventory\\[system_vendor\\]\\[{key}\\]}}"),
    ]
    return _rule(f"vendor's {key}", conditions, _set(f"/extra/system_vendor/{key}", place))


RULES: Final[list[Document]] = [
    _driver_info(("deploy_kernel", "http://192.0.2.1/kernel")),
    _driver_info(("deploy_ramdisk", "http://192.0.2.1/ramdisk")),
    _rule(
        "root device by serial number",
        [
            _empty("{node.properties[root_device]}"),
            {"op": "!is-empty", "args": {"value": "{plugin_data[root_disk][serial]}"}},
        ],
        _set("/properties/root_device/serial", "{plugin_data[root_disk][serial]}"),
    ),
    _rule(
        "the NIC that booted",
        [_has_value("{plugin_data[boot_interface]}", "{plugin_data\\[boot_interface\\]}")],
        _set("/extra/pxe_interface_mac", "{plugin_data[boot_interface]}"),
    ),
    _rule(
        "name by the description of the switch port",
        [
            *(_has_value(one, re.escape(one)) for one in (f"{{{_NIC}}}", f"{{{_NIC}.lldp_processed}}", _PORT)),
            *(_has_value(_PORT, f"^{name} ?([0-9/]*)$") for name in _PORT_NAMES),
        ],
        _set("/name", _PORT),
    ),
    *(_vendor(key) for key in ("manufacturer", "serial_number", "product_name")),
    _rule(
        "all data",
        [],
        _set("/extra/introspection_data/inventory", "{inventory}"),
        _set("/extra/introspection_data/plugin_data", "{plugin_data}"),
    ),
    _driver_info(("ipmi_username", "admin"), ("ipmi_password", "secret"), sensitive="true"),
    _driver_info(("redfish_username", "admin"), ("redfish_password", "secret"), sensitive=True),
    _driver_info(("redfish_address", "{inventory[bmc_address]}")),
    _driver_info(("redfish_verify_ca", "True")),
]
