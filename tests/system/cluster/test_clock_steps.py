"""The clock of the database, or of a host, is wrong when a service starts, or is set while it runs.

libfaketime sets it for one program: for a service on SQLite, whose clock is its host's, or for a server of PostgreSQL.
CLOCK_BOOTTIME goes on as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from sqlalchemy.exc import OperationalError

from ferroscope.runtime.system import DatabaseClock
from tests.support.daemons import Postgresql
from tests.support.installation import Played
from tests.support.processes import free_port, spawn, until
from tests.support.pxe.host_clock import HostClock
from tests.support.releases import Site, callback
from tests.support.servers import common_directory

HOUR = 3_600
YEAR = 365 * 86_400
# It goes on in the section [worker].
_SETTINGS = """
member_ttl = 3
[inspector]
timeout = {timeout}
timeout_period = 1
[lease]
profile = fast
"""
_LEASE = "SELECT epoch, renewed_at FROM leases WHERE name = 'periodic/timeouts'"
_STEPS = "SELECT id FROM clock_steps"
_RETRIES = 3


class RetryingSite(Site):
    """Asks again after 503, as clients do: a PostgreSQL under libfaketime ends a transaction now and then.

    If its SIGALRM interrupts libfaketime itself, the handler is told the real time. Where that is ahead of the clock
    that was set, all its time limits are over.
    """

    def call(self, method: str, path: str, body: Any = None) -> Any:
        for _ in range(_RETRIES):
            try:
                return super().call(method, path, body)
            except HTTPError as error:
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
        return super().call(method, path, body)

    def ask(self, statement: str) -> list[Any]:
        for _ in range(_RETRIES):
            with suppress(OperationalError):
                return super().ask(statement)
        return super().ask(statement)


class Place:
    """A database whose clock can be set, and ``ferroscope all`` on it."""

    def __init__(self, directory: Path, clock: HostClock, url: str, within: list[str]) -> None:
        self.clock = clock
        self.site = RetryingSite(directory, url, within=within)
        self.timeout = 600
        self.service: Played

    def start(self, clock: int = 0) -> None:
        """Start the service, for the first time, while the clock is so many seconds ahead."""
        self.clock.step(clock)
        with self.site.conf.open("a") as file:
            file.write(_SETTINGS.format(timeout=self.timeout))
        self.service = self.site.new("f", "all")
        self.service.wait_ready()

    def restart(self, clock: int) -> None:
        """Kill the service, and start it when the clock has been set."""
        self.service.kill()
        self.clock.step(clock)
        self.service.start()
        self.service.wait_ready()

    def set_clock(self, seconds: int) -> None:
        """Set it, and return when the service has noticed and its leader has renewed its lease since then."""
        noted = len(self.site.ask(_STEPS))
        self.clock.step(seconds)
        assert until(lambda: len(self.site.ask(_STEPS)) > noted)
        renewed = self.site.ask(_LEASE)
        assert until(lambda: self.site.ask(_LEASE) != renewed)

    def wait_for_machine(self, name: str) -> str:
        """Begin the inspection of a new node; return the MAC of its machine, which does not call back yet."""
        macs = self.site.enroll([name])
        self.site.begin([name])
        self.site.reach([name], "inspect wait")
        return macs[name]

    def problems(self) -> list[str]:
        return [problem["code"] for problem in self.site.call("GET", "/v1/status")["problems"]]


def _postgresql(clock: HostClock, directory: Path, stack: ExitStack) -> str:
    daemon, port = Postgresql(), free_port()
    directory.mkdir()
    shutil.chown(directory, daemon.user)
    daemon.install(directory)
    command = [*clock.prefix, *daemon.command(directory, port)]
    server = spawn(command, user=daemon.user, directory=directory, log=directory / "log")
    stack.callback(server.wait)
    stack.callback(server.terminate)
    assert until(lambda: daemon.answers(port)), (directory / "log").read_text()
    return f"postgresql+psycopg://ferroscope@127.0.0.1:{port}/postgres"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.fixture
def shared(stack: ExitStack) -> Path:
    """Give a directory in which a database server may write."""
    found = common_directory("clock")
    stack.callback(shutil.rmtree, found, ignore_errors=True)
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, shared: Path, stack: ExitStack) -> Place:
    clock = HostClock(shared)
    if request.param == "sqlite":
        found = Place(tmp_path, clock, f"sqlite:///{tmp_path}/f.db", clock.prefix)
    else:
        found = Place(tmp_path, clock, _postgresql(clock, shared / "server", stack), [])
    stack.callback(found.site.close)
    return found


@pytest.mark.parametrize("steps", [(YEAR, 0), (3 * HOUR,), (-3 * HOUR,)], ids=str)
def test_no_inspection_fails_because_the_clock_is_set_and_everything_goes_on(
    place: Place, steps: tuple[int, ...]
) -> None:
    place.start()
    macs = {name: place.wait_for_machine(name) for name in ("n0", "n1", "n2")}
    for number, step in enumerate(steps):
        place.set_clock(step)
        name = f"later-{number}"  # the queue goes on
        macs[name] = place.wait_for_machine(name)
        assert {place.site.states()[name] for name in macs} == {"inspect wait"}
        assert "clock-stepped" in place.problems()
    for mac in macs.values():
        place.site.call_back(mac)
    place.site.reach(list(macs), "manageable")
    assert place.site.ask("SELECT count(*) FROM journal WHERE reason IS NOT NULL") == [(0,)]
    assert place.service.stop() == 0


def _starts_late(place: Place) -> None:
    place.start()
    place.wait_for_machine("n")
    place.restart(-YEAR)


def _is_corrected_later(place: Place) -> None:
    _starts_late(place)
    place.set_clock(0)


def _was_ahead(place: Place) -> None:
    place.start(YEAR)
    place.wait_for_machine("n")
    place.restart(0)


@pytest.mark.parametrize("happens", [_starts_late, _is_corrected_later, _was_ahead])
def test_a_machine_that_never_calls_back_is_waited_for_no_longer(
    place: Place, happens: Callable[[Place], None]
) -> None:
    """Than its time-out, and once more that from the moment at which the clock was set."""
    place.timeout = 15
    happens(place)
    place.site.reach(["n"], "inspect failed")


@pytest.mark.parametrize("clocks", [(YEAR, 0), (0, -YEAR)], ids=str)
def test_what_is_shown_is_what_was_found_last(place: Place, clocks: tuple[int, int]) -> None:
    place.start(clocks[0])
    mac = place.wait_for_machine("n")
    place.site.call_back(mac)
    place.site.reach(["n"], "manageable")
    place.set_clock(clocks[1])
    place.site.begin(["n"])
    place.site.reach(["n"], "inspect wait")
    found = callback(mac)
    found["inventory"]["memory"]["physical_mb"] = 8192
    place.site.call("POST", "/v1/continue_inspection", found)
    place.site.reach(["n"], "manageable")
    place.site.begin(["n"])  # while it goes on, the order of the earlier ones decides
    place.site.reach(["n"], "inspect wait")
    assert place.site.call("GET", "/v1/nodes/n/inventory")["inventory"]["memory"]["physical_mb"] == 8192


@pytest.mark.parametrize("ahead", [YEAR, -YEAR], ids=str)
def test_a_host_whose_own_clock_is_wrong_works_by_that_of_the_database(
    tmp_path: Path, shared: Path, stack: ExitStack, ahead: int
) -> None:
    right, wrong = HostClock(shared), HostClock(tmp_path)
    place = Place(tmp_path, wrong, _postgresql(right, shared / "server", stack), wrong.prefix)
    stack.callback(place.site.close)
    place.start(ahead)
    macs = {name: place.wait_for_machine(name) for name in ("n0", "n1")}
    assert until(lambda: "clock-skew" in place.problems())
    place.site.call_back(macs["n0"])
    place.clock.step(ahead + 3 * HOUR)
    place.site.reach(["n0"], "manageable")
    place.clock.step(ahead - 3 * HOUR)
    place.site.call_back(macs["n1"])
    place.site.reach(list(macs), "manageable")
    assert place.site.ask(_STEPS) == []
    recorded = "SELECT count(*) FROM {} WHERE abs(at - EXTRACT(EPOCH FROM clock_timestamp())) > 3600"
    assert {place.site.ask(recorded.format(table))[0][0] for table in ("journal", "audit")} == {0}


def test_what_answers_take_is_no_step_and_what_was_set_is_known_to_the_second() -> None:
    clock = DatabaseClock()
    clock.look(1000.0, 0.0, 0.1)
    clock.look(1009.0, 2.0, 8.0)  # anything from 1.9 to 8 s later
    assert clock.set_by == 0.0
    clock.look(1010.0 + YEAR, 9.0, 9.1)
    assert clock.set_by == pytest.approx(YEAR, abs=10.0)
    clock.look(1011.0, 10.0, 10.1)
    assert clock.set_by == pytest.approx(0.0, abs=10.0)
