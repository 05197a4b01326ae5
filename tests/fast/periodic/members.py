"""Candidates for a periodic task, on one store and one clock."""

from __future__ import annotations

import msgspec

from ferroscope.bus.local import LocalBus
from ferroscope.core.model import DEFAULT, Node
from ferroscope.leadership import Election, Leadership, StepLeadership
from ferroscope.periodic.singleton import Singleton
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.stores import open_store

DAY = 86400.0


class Task:
    """Counts its runs; ``during`` happens in the middle of each."""

    name = "periodic/test"
    period = 30.0

    def __init__(self) -> None:
        self.runs = 0
        self.during = lambda: None

    def step(self, leadership: StepLeadership) -> str:
        self.leadership = leadership
        self.runs += 1
        self.during()
        return f"ran {self.runs} times"


class Members:
    """One store, one clock, any number of candidates for one task."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stop = ManualStop(self.clock)
        self.store = open_store(clock=self.clock)
        self.leaderships: list[Leadership] = []

    def singleton(self, holder: str, task: Task) -> Singleton:
        profile = msgspec.structs.replace(DEFAULT, poll=0.0)
        election = Election(task.name, holder, store=self.store, clock=self.clock, profile=profile)
        return Singleton(
            lambda: task,
            election,
            keep=lambda leadership, _reset, _leave: self.leaderships.append(leadership),
            profile=profile,
            bus=LocalBus(),
            clock=self.clock,
            stop=self.stop,
            new_flag=lambda: ManualStop(self.clock),
        )


def enrolled(members: Members, *uuids: str) -> None:
    for uuid in uuids:
        members.store.write(lambda tx, uuid=uuid: tx.nodes.add(Node(uuid=uuid, driver="fake")))  # type: ignore[misc]
