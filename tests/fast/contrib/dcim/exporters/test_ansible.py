"""The inventory for Ansible: groups, variables, and templates that machines report."""

from __future__ import annotations

import io
import json
from typing import Any

from ferroscope.contracts.plugins import ExportOptions
from ferroscope.contrib.dcim.exporters import loader
from tests.fast.contrib.dcim.exporters.test_tables import NODE


def inventory(*nodes: dict[str, Any]) -> dict[str, Any]:
    output = io.BytesIO()
    loader.load("ansible", ExportOptions()).write(nodes, output)
    found: dict[str, Any] = json.loads(output.getvalue())
    return found


def test_hosts_are_in_groups_by_state_class_and_label() -> None:
    odd = {**NODE, "name": None, "provision_state": "inspect failed", "maintenance": True, "resource_class": None,
           "labels": {"example.org/role": "db-1"}}  # fmt: skip
    found = inventory(NODE, odd)
    groups = {name: group["hosts"] for name, group in found.items() if name != "_meta"}
    ours, unnamed = ["rack1-u07"], [NODE["uuid"]]
    assert groups == {
        "ferroscope": ours + unnamed,
        "state_available": ours,
        "state_inspect_failed": unnamed,
        "maintenance": unnamed,
        "class_large": ours,
        "label_rack": ours,
        "label_rack_r1": ours,
        "label_spare": ours,
        "label_example_org_role": unnamed,
        "label_example_org_role_db_1": unnamed,
    }
    variables = found["_meta"]["hostvars"]["rack1-u07"]
    assert variables["ferroscope_labels"] == NODE["labels"]
    assert variables["ferroscope_hardware"]["memory"] == 2**39
    assert all(name.startswith("ferroscope_") for name in variables)


def test_a_text_that_could_be_a_template_is_marked_wherever_it_is() -> None:
    hostile = "{{ lookup('pipe', 'id') }}"
    found = inventory({**NODE, "description": hostile, "hardware": {"serial": hostile, "nested": [{"a": "{% x %}"}]}})
    variables = found["_meta"]["hostvars"]["rack1-u07"]
    assert variables["ferroscope_description"] == {"__ansible_unsafe": hostile}
    assert variables["ferroscope_hardware"] == {
        "serial": {"__ansible_unsafe": hostile},
        "nested": [{"a": {"__ansible_unsafe": "{% x %}"}}],
    }


def test_an_inventory_without_hosts_is_valid() -> None:
    assert inventory() == {"_meta": {"hostvars": {}}}
