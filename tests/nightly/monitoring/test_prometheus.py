"""A real Prometheus scrapes a real Ferroscope: it takes the rules, and finds machines."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ferroscope.telemetry.overview import LABELS, OVERVIEW
from tests import ROOT
from tests.nightly.monitoring.test_rules import ALERTS, RULES
from tests.support.installation import Installation, Played, configuration
from tests.support.processes import PATIENCE, free_port, until
from tests.support.prometheus import Prometheus
from tools.dashboards import DASHBOARDS
from tools.docs.declarations import instruments

HOW_TO: Final = ROOT / "docs/how-to"
QUERIES: Final = sorted(
    {query for dashboard in DASHBOARDS.values() for panel in dashboard.panels for query in panel.queries}
)
EXPRESSIONS: Final = [*QUERIES, *(rule["expr"] for rule in ALERTS.values())]


class Site(Installation):
    """``ferroscope all``, and the Prometheus that scrapes it."""

    service: Played
    prometheus: Prometheus

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()

    def _start(self) -> None:
        file = self.directory / "ferroscope.conf"
        file.write_text(configuration(self.directory, self.port))
        self.service = self.play("ferroscope", [sys.executable, "-m", "ferroscope", "all", "-c", str(file)])
        self.service.wait_ready()
        made = Prometheus(self.directory, [f"127.0.0.1:{self.port}"], [RULES], [self._discovery()])
        self.prometheus = self.enter(made)

    def _discovery(self) -> Any:
        """Return the scrape config of the page about exports, for this service."""
        (job,) = _documented("export-the-fleet.md", "http_sd_configs")
        (discovery,) = job["http_sd_configs"]
        discovery["url"] = discovery["url"].replace(":6385", f":{self.port}")
        discovery["refresh_interval"] = "1s"
        token = self.directory / "ferroscope.token"
        token.write_text("fst_none\n")
        discovery["authorization"]["credentials_file"] = str(token)
        return job

    def enrol(self, **fields: Any) -> None:
        headers = {"Content-Type": "application/json", "X-OpenStack-Ironic-API-Version": "latest"}
        url = f"http://127.0.0.1:{self.port}/v1/nodes"
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(fields).encode(), headers), timeout=PATIENCE
        ):
            pass

    def exposed(self) -> set[str]:
        """Return the names of all series that the service may have, from the types that it declares."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        names = set()
        for family in text_string_to_metric_families(text):
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
            names |= {family.name + suffix for suffix in suffixes}
        return names


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("monitoring")) as found:
        yield found


def _documented(page: str, word: str) -> list[Any]:
    """Return the scrape configs of the one YAML block of a page that has this word."""
    blocks = re.findall(r"```yaml\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)
    (block,) = (block for block in blocks if word in block)
    found: list[Any] = yaml.safe_load(block)["scrape_configs"]
    return found


def _names(expression: str) -> set[str]:
    """Return the names of metrics: words that are no label in ``{}`` or ``by ()``."""
    bare = re.sub(r"\{[^}]*\}|\b(by|on) \([^)]*\)", "", expression)
    return set(re.findall(r"\b(?:ferroscope|process|python)_\w+", bare))


def test_every_metric_of_the_rules_and_dashboards_is_exposed(site: Site) -> None:
    exposed, named = site.exposed(), {name for one in EXPRESSIONS for name in _names(one)}
    assert named <= exposed, named - exposed
    assert len(named) > 25


def test_every_label_that_rules_and_dashboards_select_is_one_of_the_metric() -> None:
    labels = {name: set(found) for name, _, found, _ in instruments()}
    labels |= {name: set(LABELS.get(name, ())) for name in OVERVIEW}
    for expression in EXPRESSIONS:
        for name, selected in re.findall(r"(ferroscope_\w+)\{([^}]*)\}", expression):
            known = labels[re.sub(r"_(bucket|sum|count)$", "", name)]
            assert set(re.findall(r"(\w+)\s*[!=]~?", selected)) <= known, expression


def test_prometheus_scrapes_the_service_and_evaluates_the_rules(site: Site) -> None:
    prometheus = site.prometheus
    assert until(lambda: bool(prometheus.query("ferroscope_database_up == 1")))
    assert until(lambda: all(rule["health"] == "ok" for rule in rules(prometheus)))
    assert {rule["name"] for rule in rules(prometheus)} == set(ALERTS)
    assert prometheus.firing() == set()


def test_prometheus_finds_the_bmcs_of_the_machines_as_documented(site: Site) -> None:
    for name, labels in (("a1", {"rack": "r1"}), ("b1", {"spare": ""})):
        info = {"redfish_address": f"https://{name}-bmc.example.org"}
        site.enrol(name=name, driver="redfish", driver_info=info, labels=labels)
    site.enrol(name="c1", driver="ipmi", driver_info={"ipmi_address": "192.0.2.1"})

    def scraped() -> list[Any]:
        return [one for one in site.prometheus.get("targets")["activeTargets"] if one["scrapePool"] == "bmcs"]

    assert until(scraped)
    (found,) = scraped()
    assert found["discoveredLabels"]["__address__"] == "a1-bmc.example.org"
    assert found["labels"].items() >= {"node": "a1", "rack": "r1", "instance": "redfish-exporter:9610"}.items()
    assert found["scrapeUrl"] == "http://redfish-exporter:9610/redfish?target=a1-bmc.example.org"


def test_a_query_with_an_error_is_refused(site: Site) -> None:
    with pytest.raises(ValueError, match="parse error"):
        site.prometheus.query("sum by (reason (ferroscope_nodes)")


def test_a_service_that_is_away_becomes_an_alert(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        assert until(lambda: bool(site.prometheus.query("ferroscope_database_up == 1")))
        site.service.kill()
        assert until(lambda: "FerroscopeApiMissing" in site.prometheus.firing("pending"))


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
