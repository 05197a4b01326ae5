"""Periodic steps that take longer than their lease: the processes keep running, protected by the fence alone.

A registry that accepts connections and never answers, thousands of overdue inspections, a step that hangs while another
thread takes over.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from pathlib import Path

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Entry, LeaseProfile
from ferroscope.db import Store, Transaction
from ferroscope.leadership import Election, LeaseRenewer, StepLeadership
from ferroscope.periodic.singleton import Singleton
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.states import State
from tests.support import examples
from tests.support.installation import Played, configuration
from tests.support.processes import PATIENCE, free_port, until

_SETTINGS = """
[lease]
profile = {profile}
[inspector]
timeout_period = 1
[worker]
threads = 1
{more}
"""


def play(directory: Path, *arguments: str, profile: str = "fast", more: str = "") -> Played:
    more = _SETTINGS.format(profile=profile, more=more)
    text = configuration(directory, free_port(), more, database=f"sqlite:///{directory}/f.db")
    (directory / "f.conf").write_text(text)
    return Played("f", directory, [sys.executable, "-m", "ferroscope", *arguments, "-c", "f.conf"])


def ask(directory: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(directory / "f.db", timeout=PATIENCE)
    try:
        return connection.execute(statement).fetchall()
    except sqlite3.OperationalError:  # it is not there yet
        return []
    finally:
        connection.close()


def upgraded(directory: Path) -> None:
    assert play(directory, "db", "upgrade").process.wait(PATIENCE) == 0


def test_thousands_of_overdue_inspections_end_no_process(tmp_path: Path) -> None:
    """A worker process puts the requests that end them on the queue, in one step of many transactions."""
    upgraded(tmp_path)
    backend = opened(tmp_path)
    nodes = [
        examples.node(state=State.WAITING, provision_updated_at=1.0, inspection=examples.uuid()) for _ in range(1500)
    ]

    def fill(tx: Transaction) -> None:
        for node in nodes:
            tx.nodes.add(node)
            waits = {"state": State.WAITING, "started_at": 1.0, "waiting_since": 1.0, "clock_since": 1.0}
            tx.inspections.add(examples.inspection(node, uuid=node.inspection, **waits))

    backend.store.write(fill)
    backend.close()
    service = play(tmp_path, "all", profile="fast")
    try:
        overdue = "SELECT count(*) FROM nodes WHERE state = 'waiting' AND uuid NOT IN (SELECT node FROM requests)"
        left = len(nodes)
        while left:  # however long all take: each few must not take long
            before = left
            assert until(lambda: ask(tmp_path, overdue)[0][0] < before or not service.alive)  # noqa: B023
            ((left,),) = ask(tmp_path, overdue)
            assert service.alive
        assert ask(tmp_path, "SELECT epoch FROM leases WHERE name = 'periodic/timeouts'") == [(1,)]
    finally:
        service.end()


PROFILE = LeaseProfile(ttl=1.0, renew=0.2, poll=0.1, margin=0.3)


def opened(directory: Path) -> Backend:
    database = DatabaseSettings(connection=f"sqlite:///{directory}/f.db")
    return open_backend(Settings(database=database), clock=SystemClock(), stop=threading.Event(), listen=False)


class Writes:
    """A ``PeriodicTask`` whose every run writes its name; a run that ``hangs`` does so after it was let go."""

    name = "periodic/test"
    period = 0.1

    def __init__(self, store: Store, who: str, *, hangs: bool) -> None:
        self._store = store
        self._who = who
        self._hangs = hangs
        self.began, self.released, self.refused = threading.Event(), threading.Event(), threading.Event()

    def step(self, leadership: StepLeadership) -> str:
        def work(tx: Transaction) -> None:
            leadership.fence(tx)
            tx.journal.append([Entry(node=self._who, step="tested", message="wrote", process=self._who)])

        self.began.set()
        if self._hangs:
            self.released.wait(PATIENCE)
        try:
            self._store.write(work)
        except LeaseLostError:
            self.refused.set()
            raise
        return "wrote"


def test_a_step_that_hangs_loses_its_lease_and_what_it_writes_later_is_refused(tmp_path: Path) -> None:
    """No process ends for it, not even where it is the only one: the task stands again in another thread."""
    upgraded(tmp_path)
    backend, clock, stop = opened(tmp_path), SystemClock(), threading.Event()
    tasks: list[Writes] = []

    def build() -> Writes:
        tasks.append(Writes(backend.store, f"task {len(tasks)}", hangs=not tasks))
        return tasks[-1]

    def wrote() -> set[str | None]:
        return {entry.process for entry in backend.store.read(lambda tx: tx.journal.list(Query(sort_key="id")))}

    election = Election(Writes.name, "me", store=backend.lease_store, clock=clock, profile=PROFILE)
    keep = LeaseRenewer(PROFILE, clock, leave=stop.set)  # nobody shall call this
    one = Singleton(build, election, keep=keep, profile=PROFILE, bus=LocalBus(), clock=clock, stop=stop)
    one.start()
    try:
        assert tasks[0].began.wait(PATIENCE)
        assert until(lambda: wrote() == {"task 1"})
        assert one.problem is not None
        assert one.problem.code == "step-hangs"
        tasks[0].released.set()
        assert tasks[0].refused.wait(PATIENCE)
        assert wrote() == {"task 1"}
        assert not stop.is_set()
    finally:
        stop.set()
        one.join(PATIENCE)
        backend.close()
