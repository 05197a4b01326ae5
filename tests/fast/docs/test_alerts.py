"""Each alert has a section that says what it means and what to do, and leads to it."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from ferroscope.cli.docs import section
from ferroscope.contracts.telemetry import FAILOVER_PROBLEMS
from tests import ROOT
from tests.fast.cli.running import run
from tests.support.rows import each

PAGE: Final = ROOT / "docs/how-to/act-on-alerts.md"
RULES: Final = ROOT / "deploy/prometheus/ferroscope.rules.yml"
ALERTS: Final[dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.load(RULES.read_text(), Loader=yaml.CSafeLoader)["groups"]
    for rule in group["rules"]
}
PARTS: Final = ("Means", "Look", "Do", "Over")


@each("name", ALERTS)
def test_an_alert_leads_to_its_section(name: str) -> None:
    command = ALERTS[name]["annotations"]["runbook"]
    assert command == f"ferroscope docs act-on-alerts#{name.lower()}"
    found = section(PAGE.read_text(encoding="utf-8"), name.lower())
    assert found.startswith(f"### {name}\n")
    assert [part for part in PARTS if f"* **{part}:** " not in found] == []


def test_no_section_is_for_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"^### (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == set(ALERTS)


def test_a_section_ends_where_the_next_one_begins() -> None:
    done = run("docs", "act-on-alerts#ferroscopenoworker")
    assert done.stdout.startswith("### FerroscopeNoWorker\n")
    assert done.stdout.count("### ") == 1
    refused = run("docs", "act-on-alerts#nothing")
    assert refused.exit_code != 0
    assert "nothing" in refused.stderr


@each("copy", ["kubernetes/prometheus-rule/rules.yaml", "helm/ferroscope/ferroscope.rules.yml"])
def test_the_operator_gets_the_same_rules(copy: str) -> None:
    found = yaml.safe_load((ROOT / "deploy" / copy).read_text(encoding="utf-8"))
    assert found.get("spec", found) == yaml.safe_load(RULES.read_text(encoding="utf-8"))


def test_each_problem_of_failover_has_an_alert() -> None:
    codes = re.findall(r"ferroscope_failover_problems\{code=\"([^\"]+)\"\}", RULES.read_text(encoding="utf-8"))
    assert sorted(codes) == sorted(FAILOVER_PROBLEMS)
