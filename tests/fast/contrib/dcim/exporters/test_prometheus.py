"""Targets for Prometheus: which host, and which labels."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from ferroscope.contracts.plugins import ExportOptions
from ferroscope.contrib.dcim.exporters import loader
from tests.fast.contrib.dcim.exporters.test_tables import NODE
from tests.support.rows import each


def targets(*nodes: dict[str, Any], **parameters: str) -> list[dict[str, Any]]:
    output = io.BytesIO()
    loader.load("prometheus-sd", ExportOptions(parameters=parameters)).write(nodes, output)
    found: list[dict[str, Any]] = json.loads(output.getvalue())
    return found


def test_a_target_is_a_name_with_the_fields_of_its_node() -> None:
    known = {"labels": {"example.org/role": "db"}, "driver_info": {"redfish_address": "https://192.0.2.17"}}
    known["hardware"] = NODE["hardware"] | {"ip": "2001:db8::7"}
    (found,) = targets({**NODE, **known}, {**NODE, "name": None}, port="9100")
    assert found["targets"] == ["rack1-u07:9100"]
    assert found["labels"] == {
        "__meta_ferroscope_uuid": NODE["uuid"],
        "__meta_ferroscope_name": "rack1-u07",
        "__meta_ferroscope_provision_state": "available",
        "__meta_ferroscope_power_state": "power off",
        "__meta_ferroscope_driver": "redfish",
        "__meta_ferroscope_owner": "ops",
        "__meta_ferroscope_resource_class": "large",
        "__meta_ferroscope_maintenance": "false",
        "__meta_ferroscope_vendor": "Dell",
        "__meta_ferroscope_serial": "9YPX7M2",
        "__meta_ferroscope_label_example_org_role": "db",
        "__meta_ferroscope_bmc": "192.0.2.17",
        "__meta_ferroscope_ip": "2001:db8::7",
    }


@each(
    ("info", "expected"),
    [
        ({"redfish_address": "https://192.0.2.17:8443"}, ["192.0.2.17"]),
        ({"ipmi_address": "2001:db8::17"}, ["[2001:db8::17]"]),
        ({"redfish_address": "https://bmc.example.org"}, ["bmc.example.org"]),
        ({"redfish_address": "no host: \n"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_target_can_be_the_bmc(info: Any, expected: list[str] | None) -> None:
    found = targets({**NODE, "driver_info": info}, target="bmc")
    assert [one["targets"] for one in found] == ([] if expected is None else [expected])


@each(("ip", "expected"), [("192.0.2.7", "192.0.2.7:9100"), ("2001:db8::7", "[2001:db8::7]:9100")])
def test_a_target_can_be_the_machine(ip: str, expected: str) -> None:
    unknown = {**NODE, "hardware": {"content": "** Redacted **"}}
    (found,) = targets({**NODE, "hardware": {"ip": ip}}, NODE, unknown, target="ip", port="9100")
    assert found["targets"] == [expected]


@each("wrong", [{"target": "uuid"}, {"port": "http"}, {"port": "65536"}, {"colour": "red"}])
def test_a_wrong_parameter_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        targets(NODE, **wrong)
