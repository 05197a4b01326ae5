"""How often one inspection waits for its database server: a count, overheard on the wire, and not a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import make_url

from ferroscope.config.options import NotificationSettings, Settings
from ferroscope.hooks.pipeline import from_settings
from ferroscope.runtime.system import SystemClock
from ferroscope.telemetry.metrics import Metrics
from ferroscope.worker.loop import Worker
from ferroscope.worker.services import Services
from ferroscope.worker.start import PxeFilterWait, RebootThrottle
from ferroscope.worker.tasks import build
from ferroscope_client.core.states import State
from tests.api.service import DRIVERS, Service, callback_body
from tests.support import examples
from tests.support.wire import Overheard, Wire, kinds

# What one inspection takes, of which nothing is idle talk: nobody beats, renews or polls here.
ROUND_TRIPS = {"postgresql": 19, "mariadb": 19}
# A connection prepares what it says for the fifth time; and a machine is as it was before.
_WARM = 6
# Events are written together with what they tell of: no round trip more.
TARGET = '{"name": "t", "url": "http://127.0.0.1:9/"}'


class _Standing(SystemClock):
    """A clock that stands, so that nothing is due that is done every few seconds, however long the machine takes."""

    def monotonic(self) -> float:
        return 1000.0


class Site:
    """A service and a worker, one step at a time, on a database behind ``wire``."""

    def __init__(self, url: str, wire: Wire, *targets: str) -> None:
        overheard = make_url(url).set(port=wire.port).render_as_string(hide_password=False)
        clock = _Standing()
        self.wire = wire
        self.meter = Metrics(CollectorRegistry())
        sections = {"notifications": NotificationSettings(target=targets)}
        self.service = Service(overheard, sections=sections, clock=clock, meter=self.meter)
        settings: Settings = self.service.settings
        self.service.store.write(lambda tx: tx.members.beat(examples.member("m1"), 600.0))
        throttle = RebootThrottle(
            0.0, holder="m1", store=self.service.store, clock=clock, profile=settings.lease.numbers()
        )
        services = Services(
            self.service.store, settings, clock, threading.Event(), member="m1", process="worker", meter=self.meter
        )
        tasks = build(from_settings(settings.inspector), throttle, PxeFilterWait())
        self.worker = Worker(services, self.service.backend.queue, tasks, DRIVERS)
        self.ident = self.service.enrol(name="one")
        self.mac = examples.mac()
        self.service.bare_metal.post("/v1/ports", {"node_ident": self.ident, "address": self.mac})
        self.service.bare_metal.put(f"/v1/nodes/{self.ident}/states/provision", {"target": "manage"})
        self.worker.step()

    def inspect(self) -> Overheard:
        """Inspect the machine once; return what was said for that."""
        before = self.wire.overheard()
        answer = self.service.bare_metal.put(f"/v1/nodes/{self.ident}/states/provision", {"target": "inspect"})
        assert answer.status_code == 202, answer.text
        self.worker.step()
        answer = self.service.bare_metal.post("/v1/continue_inspection", callback_body(self.mac))
        assert answer.status_code == 202, answer.text
        self.worker.step()
        said = self.wire.overheard() - before
        assert self.service.node(self.ident).state is State.FINISHED
        return said


@pytest.fixture(params=sorted(ROUND_TRIPS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[(), (TARGET,)], ids=["no target", "one target"])
def site(request: pytest.FixtureRequest, family: str) -> Iterator[Site]:
    url = request.getfixturevalue(f"{family}_url")
    wire = Wire(family, make_url(url).port or 0)
    found = Site(url, wire, *request.param)
    yield found
    found.service.close()
    wire.close()


def test_an_inspection_takes_few_round_trips_to_its_database(site: Site) -> None:
    for _ in range(_WARM):
        site.inspect()
    said = min((site.inspect() for _ in range(3)), key=lambda one: one.round_trips)
    assert any("outbox" in turn for turn in said.turns) == bool(site.service.settings.notifications.target)
    told = "\n".join(f"{times:3} {turn}" for turn, times in said.turns.items())
    assert said.round_trips <= ROUND_TRIPS[site.wire.family], told
    # Their metrics were known without asking the database.
    observed = site.meter.registry.get_sample_value
    assert observed("ferroscope_inspection_seconds_count", {"result": "finished"}) == _WARM + 3
    for phase in ("queue", "starting", "waiting", "processing"):
        labels = {"phase": phase, "result": "finished"}
        assert observed("ferroscope_inspection_phase_seconds_count", labels) == _WARM + 3


def test_statements_are_told_apart_by_what_they_do() -> None:
    assert kinds(
        "SELECT a.b FROM nodes WHERE name = 'x; DELETE FROM y' FOR UPDATE; insert INTO t VALUES ('a''b;')"
    ) == [
        "SELECT nodes for update",
        "INSERT t",
    ]
