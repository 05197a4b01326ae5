"""``ferroscope rule``, beside the real application."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.fast.docs.pages import page
from tests.support import examples
from tests.system.cli.console import Shell

RULE: dict[str, Any] = {
    "description": "marks machines with memory",
    "conditions": [{"op": "gt", "args": {"values": ["{inventory[memory][physical_mb]}", 1]}}],
    "actions": [{"op": "set-attribute", "args": {"path": "extra/marked", "value": True}}],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rule.yaml"
    path.write_text(json.dumps(RULE))
    return path


def test_rules_are_created_listed_changed_shown_and_deleted(shell: Shell, file: Path) -> None:
    (made,) = shell.json("rule", "create", str(file))
    uuid = made["uuid"]
    assert [rule["uuid"] for rule in shell.json("rule", "list")] == [uuid]
    assert "set-attribute" in shell("rule", "list", check=0).stdout
    changed = shell.json("rule", "set", uuid, "--priority", "7", "--scope", "rack 1")
    assert (changed["priority"], changed["scope"], changed["actions"]) == (7, "rack 1", RULE["actions"])
    assert "rack 1" in shell("rule", "show", uuid, check=0).stdout
    hidden = shell.json("rule", "set", uuid, "--sensitive")
    assert hidden["actions"] is None
    assert "hidden" in shell("rule", "show", uuid, check=0).stdout
    shell("rule", "delete", uuid, check=0)
    shell("rule", "show", uuid, check=Exit.NOT_FOUND)
    shell("rule", "create", str(file), check=0)
    shell("rule", "delete", "--all", check=0)
    assert shell.json("rule", "list") == []


@pytest.mark.parametrize("nothing", ["", ".", "..", "%2e", "all"])
def test_an_identifier_that_names_no_rule_deletes_none(shell: Shell, file: Path, nothing: str) -> None:
    (made,) = shell.json("rule", "create", str(file))
    shell("rule", "delete", nothing, check=Exit.NOT_FOUND)
    shell("rule", "delete", made["uuid"], nothing, check=Exit.NOT_FOUND)
    shell("rule", "set", nothing, "--priority", "3", check=Exit.NOT_FOUND)
    assert "UUID" in shell("rule", "show", nothing, check=Exit.NOT_FOUND).stderr
    assert [rule["uuid"] for rule in shell.json("rule", "list")] == [made["uuid"]]


def test_what_is_wrong_with_a_file_is_said(shell: Shell, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(json.dumps([RULE | {"actions": [{"op": "explode", "args": {}}]}]))
    result = shell("rule", "check", str(wrong), check=Exit.FAILURE)
    assert "rule 1: actions[0]: " in result.stdout
    assert shell.json("rule", "check", str(wrong), check=Exit.FAILURE)["valid"] is False
    assert "'explode'" in shell("rule", "create", str(wrong), check=Exit.USAGE).stderr
    wrong.write_text("{actions: [{op: set-attribute, args: {path: extra/a, value: .nan}}]}")
    assert "JSON" in shell("rule", "create", str(wrong), check=Exit.USAGE).stderr
    wrong.write_text("just a text")
    shell("rule", "create", str(wrong), check=Exit.USAGE)
    shell("rule", "create", str(tmp_path / "none.yaml"), check=Exit.USAGE)
    shell("rule", "set", examples.uuid(), check=Exit.USAGE)
    shell("rule", "delete", check=Exit.USAGE)


def test_the_rules_of_a_file_are_created_together_or_not_at_all(shell: Shell, tmp_path: Path) -> None:
    several = tmp_path / "several.yaml"
    several.write_text(json.dumps([RULE, RULE, RULE | {"actions": [{"op": "explode", "args": {}}]}]))
    found = shell("rule", "create", str(several), check=Exit.USAGE).stderr
    assert f"{several}, rule 3: " in found
    assert "No rule was created." in found
    assert shell.json("rule", "list") == []


def test_the_rule_of_the_how_to_is_valid_and_is_created(shell: Shell, tmp_path: Path) -> None:
    (written,) = [block.text for block in page("docs/how-to/write-a-rule.md").blocks if block.language == "yaml"][:1]
    gold = tmp_path / "gold.yaml"
    gold.write_text(written)
    assert "1 rule, all valid" in shell("rule", "check", str(gold), check=0).stdout
    assert len(shell.json("rule", "create", str(gold))) == 1


def test_a_dry_run_shows_what_would_change(service: Service, shell: Shell, file: Path) -> None:
    node = service.enrol(name="one")
    service.inspect(node)
    (made,) = shell.json("rule", "create", str(file))
    found = shell("rule", "explain", made["uuid"], "--node", "one", check=0).stdout
    assert "marks machines with memory" in found
    assert "if gt: true" in found
    assert "/extra/marked" in found
    everything = shell.json("rule", "explain", "--node", "one")
    assert [rule["uuid"] for rule in everything["rules"]] == [made["uuid"]]
    draft = file.with_name("draft.yaml")
    draft.write_text(json.dumps({"actions": [{"op": "fail", "args": {"msg": "not this one"}}]}))
    refused = shell("rule", "explain", str(draft), "--node", "one", check=Exit.FAILURE).stdout
    assert "not this one" in refused
    assert "The inspection would fail." in refused
    assert service.node(node).extra == {}
    shell("rule", "explain", examples.uuid(), "--node", "one", check=Exit.NOT_FOUND)
