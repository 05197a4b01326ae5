"""``ferroscope policy``: the defaults, the overrides of a file, and what they allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ferroscope.api.auth.policy import RULES
from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit

FILE = (
    '"baremetal:node:delete": "role:member and system_scope:all"\n'
    '"ferroscope:lease:hold": "(role:admin and system_scope:all) or (project_name:%(lease.prefix)s and role:member)"\n'
)


@pytest.fixture
def configured(tmp_path: Path) -> str:
    policies, file = tmp_path / "policy.yaml", tmp_path / "f.conf"
    policies.write_text(FILE)
    file.write_text(f"[oslo_policy]\npolicy_file = {policies}\n[database]\nconnection = sqlite:///{tmp_path}/f.db\n")
    return str(file)


def run(*arguments: str, code: int = Exit.OK) -> str:
    result = CliRunner().invoke(main, ["policy", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_list_marks_overrides(configured: str) -> None:
    listed = json.loads(run("list", "-c", configured, "-o", "json"))
    assert [row["name"] for row in listed] == [rule.name for rule in RULES]
    assert {row["name"] for row in listed if row["overridden"]} == {"baremetal:node:delete", "ferroscope:lease:hold"}
    assert "baremetal:node:delete" in run("list", "-c", configured)


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ("baremetal:node:delete --role member", True),
        ("baremetal:node:delete --role reader", False),
        ("baremetal:node:get --role reader --project p", False),
        ("baremetal:node:get --role reader --project p --owner p", True),
        ("ferroscope:lease:hold --role member --project backup --lease backup/main", True),
        ("ferroscope:lease:hold --role member --project backup --lease other/main", False),
    ],
)
def test_a_check_is_what_the_api_decides(configured: str, arguments: str, allowed: bool) -> None:
    shown = run("check", *arguments.split(), "-c", configured, code=Exit.OK if allowed else Exit.FAILURE)
    assert shown == ("allowed\n" if allowed else "forbidden\n")


def test_an_unknown_policy_and_a_broken_file_are_errors(configured: str, tmp_path: Path) -> None:
    run("check", "baremetal:node:got", "--role", "admin", "-c", configured, code=Exit.USAGE)
    (tmp_path / "policy.yaml").write_text('"baremetal:node:get": "rule:nowhere"\n')
    run("list", "-c", configured, code=Exit.FAILURE)


def test_a_policy_that_is_misspelt_is_named_and_the_files_own_rules_are_not(configured: str, tmp_path: Path) -> None:
    given = '"operators": "role:ops"\n"baremetal:node:get": "rule:operators"\n"baremetal:node:delte": "!"\n'
    (tmp_path / "policy.yaml").write_text(given)
    listed = CliRunner().invoke(main, ["policy", "list", "-c", configured, "-o", "json"])
    assert listed.stderr == (
        "note: the file has a policy that decides nothing here: baremetal:node:delte (did you mean "
        "baremetal:node:delete?)\n"
    )
    assert json.loads(listed.stdout)


def test_the_sample_without_its_comment_signs_is_the_defaults() -> None:
    lines = [line.removeprefix("#") for line in run("sample").splitlines() if line.startswith('#"')]
    assert yaml.safe_load("\n".join(lines)) == {rule.name: rule.check for rule in RULES}
