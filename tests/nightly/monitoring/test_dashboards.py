"""The dashboards of deploy/grafana: each query has data of a real run in a real Prometheus; Grafana knows each field.

No package registry has Grafana itself, so the dashboards are not loaded into one. Its developers publish the model of
its dashboards (grafana-foundation-sdk): whatever that does not know is lost on the way through it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import FleetThread
from tests import ROOT
from tests.nightly.monitoring.test_rules import RULES
from tests.support.http_target import HttpTarget
from tests.support.installation import Installation, configuration
from tests.support.processes import PATIENCE, free_port, until
from tests.support.prometheus import Prometheus
from tests.system.cli.console import Shell
from tools.dashboards import DASHBOARDS, render

GRAFANA: Final = ROOT / "deploy/grafana"
PANELS: Final = [
    (f"{file.removesuffix('.json')}: {panel.title}", query)
    for file, dashboard in DASHBOARDS.items()
    for panel in dashboard.panels
    for query in panel.queries
]
# What has no data as long as nothing of the kind happens: a leader that loses its lease, a worker
# whose claim expires, a certificate, and a dead node of a Kubernetes cluster.
QUIET: Final = {
    "control-plane: Certificate expires in",
    "control-plane: Failed renewals of leases",
    "control-plane: Lost claims",
    "control-plane: Failover of Kubernetes nodes",
}
_CONFIGURATION = """
[drivers]
enabled = sim
[auto_discovery]
enabled = true
driver = sim
[notifications]
target = {{"name": "cmdb", "url": "{target}"}}
[pxe_filter]
backends = noop
network = dashboards-{port}
"""


class Run(Installation):
    """``ferroscope all`` and a PXE filter, the machines that they inspect, and the Prometheus that scrapes both."""

    prometheus: Prometheus
    shell: Shell

    def _start(self) -> None:
        port, metrics = free_port(), free_port()
        target = self.enter(HttpTarget())
        target.statuses = [503]  # so that events wait
        settings = configuration(self.directory, port, _CONFIGURATION.format(port=port, target=target.url))
        for role, more in (("all", ""), ("pxe-filter", f"[metrics]\nport = {metrics}\n")):
            file = self.directory / f"{role}.conf"
            file.write_text(settings + more)
            self.play(role, [sys.executable, "-m", "ferroscope", role, "-c", str(file)]).wait_ready()
        self.shell = Shell(f"http://127.0.0.1:{port}")
        targets = [f"127.0.0.1:{one}" for one in (port, metrics)]
        self.prometheus = self.enter(Prometheus(self.directory, targets, [RULES]))

    def inspect_fleet(self) -> None:
        """Inspect good and bad machines twice, between two scrapes; a machine that is unknown calls back, too."""
        settings = FleetSettings(
            nodes=3,
            special=("sim-ramdisk-error-1", "sim-power-fail-1", "sim-lost-dimm-1", "sim-unknown-macs-1"),
            callback_url=f"{self.shell.url}/v1/continue_inspection",
            boot_delay=0.3,
            boot_jitter=0.1,
            time_scale=0.1,
        )
        with FleetThread(settings) as fleet:
            members = roster(settings)
            assert not enroll(members, api_url=self.shell.url, sim_address=fleet.address).failed
            names = {member.name for member in members}
            callers = names - {"sim-unknown-macs-1"}  # that one is somebody else by its call, and waited for in vain
            for number in (1, 2):
                self.shell("inspect", *names - callers)
                self.shell("inspect", *callers, "--wait", "--timeout", f"{PATIENCE:.0f}")
                counted = f'max(ferroscope_transitions_total{{event="finish",target="finished"}}) >= {3 * number}'
                assert until(lambda counted=counted: bool(self.prometheus.query(counted)))  # type: ignore[misc]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Run(tmp_path_factory.mktemp("dashboards")) as run:
        run.inspect_fleet()
        yield run.prometheus


def _asked(query: str) -> str:
    return query.replace("$__rate_interval", "5m")


@pytest.mark.parametrize(("title", "query"), PANELS, ids=[title for title, _ in PANELS])
def test_a_panel_has_data(prometheus: Prometheus, title: str, query: str) -> None:
    if title in QUIET:
        assert prometheus.query(_asked(query)) == []
    else:
        assert until(lambda: bool(prometheus.query(_asked(query))))


@pytest.mark.parametrize("file", DASHBOARDS)
def test_grafana_knows_every_field_of_a_dashboard(file: str) -> None:
    register_default_plugins()
    given = json.loads((GRAFANA / file).read_text())
    assert sorted(_lost(given, _through(given))) == []


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    given = json.loads(render("overview.json"))
    given["panels"][0]["targets"][0]["expression"] = given["panels"][0]["targets"][0].pop("expr")
    assert sorted(_lost(given, _through(given))) == ["/panels/0/targets/0/expression"]


def _through(given: dict[str, Any]) -> Any:
    return json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(given)))


def _lost(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of what is not in ``kept`` as it was given."""
    if isinstance(given, dict) and isinstance(kept, dict):
        pairs = [(name, value, kept.get(name)) for name, value in given.items()]
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = [(str(at), value, kept[at]) for at, value in enumerate(given)]
    else:
        if given != kept:
            yield path
        return
    for name, value, other in pairs:
        yield from _lost(value, other, f"{path}/{name}")


@pytest.mark.parametrize("file", DASHBOARDS)
def test_the_committed_dashboard_is_up_to_date_and_its_panels_do_not_overlap(file: str) -> None:
    text = (GRAFANA / file).read_text()
    assert text == render(file), "run: python -m tools.dashboards"
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(text)["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_identifiers_of_dashboards_differ_and_no_other_file_is_there() -> None:
    assert {file.name for file in GRAFANA.iterdir()} == set(DASHBOARDS)
    assert len({json.loads(render(file))["uid"] for file in DASHBOARDS}) == len(DASHBOARDS) == 3
