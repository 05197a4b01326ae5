"""The alerting rules of deploy/prometheus: promtool accepts them, and each fires when it should and only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests import ROOT
from tests.fast.docs.test_commands import known
from tests.nightly.monitoring.alerts import CASES, unit_tests
from tests.support.prometheus import promtool

RULES: Final = ROOT / "deploy/prometheus/ferroscope.rules.yml"
ALERTS: Final[dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert set(CASES) == set(ALERTS)
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(unit_tests(str(RULES)), width=1000))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_unit_test_of_a_rule_that_does_not_fire_fails(tmp_path: Path) -> None:
    blunt = tmp_path / "rules.yml"
    blunt.write_text(RULES.read_text().replace('max(ferroscope_problems{code="member-dead"}) > 0', "vector(0) > 0"))
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(unit_tests(str(blunt)), width=1000))
    done = promtool("test", "rules", str(file))
    assert done.returncode != 0
    assert "FerroscopeMembersMissing" in done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_says_how_severe_it_is_what_is_wrong_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}


def _commands() -> list[str]:
    texts = [text for rule in ALERTS.values() for text in rule["annotations"].values()]
    return sorted(
        {found for text in texts for found in re.findall(r"ferroscope ([a-z]+(?:-[a-z]+)*(?: [a-z]+)?)", text)}
    )


@pytest.mark.parametrize("words", _commands())
def test_the_commands_that_alerts_name_exist(words: str) -> None:
    assert known(words.split()) is None
