"""Inspection rules and introspection rules with the published clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.examples import uuid
from tests.system.clients.environment import ClientError
from tests.system.clients.site import Site

CONDITIONS = [{"op": "gt", "args": {"values": ["{inventory[memory][physical_mb]}", 1]}}]
ACTIONS = [{"op": "set-attribute", "args": {"path": "extra/mark", "value": "{inventory[cpu][count]}"}}]
OLD_CONDITIONS = [{"op": "gt", "field": "inventory.memory.physical_mb", "value": 1}]
OLD_ACTIONS = [{"action": "set-attribute", "path": "/extra/old", "value": "{data[inventory][cpu][count]}"}]


@pytest.fixture(autouse=True)
def no_rules(site: Site) -> Iterator[None]:
    """Leave no rule to the next test, nor to the nodes of the others."""
    yield
    site.request("DELETE", "/v1/inspection_rules")


def create(site: Site, *words: str) -> dict[str, Any]:
    rule: dict[str, Any] = site.baremetal(
        "inspection", "rule", "create", "--actions", json.dumps(ACTIONS), *words, "-f", "json"
    ).json()
    return rule


def test_baremetal_creates_shows_lists_changes_and_deletes_rules(site: Site) -> None:
    words = ("--description", "marks", "--priority", "7", "--conditions", json.dumps(CONDITIONS))
    rule = create(site, *words)
    ident = rule["uuid"]
    assert (rule["description"], rule["priority"], rule["phase"]) == ("marks", 7, "main")
    shown = site.baremetal("inspection", "rule", "show", ident, "-f", "json").json()
    assert (shown["conditions"], shown["actions"]) == (CONDITIONS, ACTIONS)
    rows = site.baremetal("inspection", "rule", "list", "-f", "json").json()
    assert [row["uuid"] for row in rows] == [ident]
    site.baremetal("inspection", "rule", "list", "--long", "-f", "json")
    site.baremetal("inspection", "rule", "set", ident, "--priority", "9", "--description", "new")
    changed = site.get(f"/v1/inspection_rules/{ident}")
    assert (changed["priority"], changed["description"]) == (9, "new")
    site.baremetal("inspection", "rule", "unset", ident, "--description", "--condition", "0")
    changed = site.get(f"/v1/inspection_rules/{ident}")
    assert (changed["description"], changed["conditions"]) == (None, [])
    site.baremetal("inspection", "rule", "delete", ident)
    assert not site.exists(f"/v1/inspection_rules/{ident}")


def test_a_rule_marks_the_node_that_is_inspected(site: Site) -> None:
    create(site, "--conditions", json.dumps(CONDITIONS))
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    assert site.node(node)["extra"]["mark"] == machine.sends()["inventory"]["cpu"]["count"]


def test_openstacksdk_makes_changes_and_deletes_inspection_rules(site: Site) -> None:
    rule = site.call("sdk.create_inspection_rule", conditions=CONDITIONS, actions=ACTIONS, description="sdk")
    assert (rule["conditions"], rule["actions"], rule["description"]) == (CONDITIONS, ACTIONS, "sdk")
    assert [one["id"] for one in site.call("sdk.list_inspection_rules")] == [rule["id"]]
    changed = site.call("sdk.update_inspection_rule", rule=rule["id"], priority=5)
    assert changed["priority"] == 5
    site.call("sdk.delete_inspection_rule", rule=rule["id"])
    assert site.call("sdk.list_inspection_rules") == []


def test_openstacksdk_makes_and_deletes_introspection_rules(site: Site) -> None:
    ident = uuid()
    rule = site.call("sdk.create_introspection_rule", uuid=ident, conditions=OLD_CONDITIONS, actions=OLD_ACTIONS)
    assert rule["id"] == ident
    assert [one["id"] for one in site.call("sdk.list_introspection_rules")] == [ident]
    site.call("sdk.delete_introspection_rule", rule=ident)
    assert site.call("sdk.list_introspection_rules") == []


def test_the_inspector_client_imports_lists_shows_deletes_and_purges(site: Site) -> None:
    rule = site.call("inspector.create_rule", conditions=OLD_CONDITIONS, actions=OLD_ACTIONS, description="old")
    assert [(one["op"], one["field"], one["value"]) for one in rule["conditions"]] == [
        ("gt", "inventory.memory.physical_mb", 1)
    ]
    assert rule["actions"] == OLD_ACTIONS
    assert [one["uuid"] for one in site.call("inspector.list_rules")] == [rule["uuid"]]
    assert site.call("inspector.get_rule", uuid=rule["uuid"]) == rule
    again = site.call("inspector.import_rule", rule={**rule, "uuid": uuid()})
    site.call("inspector.delete_rule", uuid=rule["uuid"])
    assert [one["uuid"] for one in site.call("inspector.list_rules")] == [again["uuid"]]
    site.call("inspector.delete_all_rules")
    assert site.call("inspector.list_rules") == []
    with pytest.raises(ClientError, match="was not found"):
        site.call("inspector.get_rule", uuid=rule["uuid"])


def test_a_rule_that_fails_tells_the_inspector_client_why(site: Site) -> None:
    actions = [{"action": "fail", "message": "no such rack"}]
    site.call("inspector.create_rule", conditions=[], actions=actions)
    node = site.enroll(site.machine())
    assert "no such rack" in site.call("inspector.introspect", nodes=[node])[node]["error"]
