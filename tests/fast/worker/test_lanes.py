"""Two lanes of real threads over a store in memory: what waits for BMCs, what computes, and what never returns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import Query, packed
from ferroscope.core.model import Inspection, Node
from ferroscope.core.states import Event
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.loader import LoadedHook
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.worker import pool, slots
from ferroscope.worker.pool import WorkerPool
from ferroscope.worker.process import ProcessTask, RuleStep
from ferroscope_client.core.obstacles import Lane
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.fast.worker.conftest import INVENTORY, NODE, Machine, Service, settings
from tests.support.processes import until

SECONDS = 60.0


class Stuck(InspectionHook):
    """Returns when the test lets it."""

    def __init__(self) -> None:
        self.entered, self.released, self.left = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, task: HookTask, inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        self.entered.set()
        self.released.wait(SECONDS)
        task.node.extra["late"] = True
        self.left.set()


class Slow(Machine):
    """A BMC that answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def _check(self, command: str) -> None:
        self.asked.set()
        if not self.answers.wait(SECONDS):
            raise BmcError("no answer", transient=True)
        super()._check(command)


class Site:
    """A service whose worker has both lanes; the node ``NODE``, and more of them with BMCs of their own."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.hook = Stuck()
        self.slow = Slow()
        self.pool = WorkerPool(service.worker)
        self.add_driver("slow", self.slow)

    def add_driver(self, name: str, machine: Machine) -> None:
        self.service.worker.drivers = {**self.service.worker.drivers, name: machine}

    def hang(self) -> None:
        """Let the data of every machine run into the hook that does not return."""
        stuck = Pipeline([LoadedHook("stuck", self.hook)], self.service.settings.inspector)
        task = ProcessTask(stuck, RuleStep())
        self.service.worker.tasks = {**self.service.worker.tasks, Event.CONTINUE: task, Event.REAPPLY: task}

    def node(self, number: int, driver: str = "machine") -> str:
        uuid = f"11111111-1111-4111-8111-{number:012d}"
        info = {f"{driver}_address": f"192.0.2.{number}"}
        node = Node(uuid=uuid, driver=driver, driver_info=info, provision_state=Provision.MANAGEABLE)
        self.service.store.write(lambda tx: tx.nodes.add(node))
        return uuid

    def start(self, uuid: str) -> None:
        ident = uuid.replace("1111", "2222", 1)
        self.service.store.write(lambda tx: transition.start(tx, tx.nodes.get(uuid), inspection=ident, process="api"))

    def submit(self, uuid: str, event: Event) -> None:
        self.service.store.write(lambda tx: transition.submit(tx, tx.nodes.get(uuid), event, process="api"))

    def call_back(self, uuid: str) -> None:
        parts: Any = {"inventory": msgspec.json.encode(INVENTORY), "unprocessed": b"{}"}
        ident = str(self.get(uuid).inspection)
        self.service.store.write(lambda tx: tx.data.save(ident, uuid, packed(parts)))
        self.submit(uuid, Event.CONTINUE)

    def get(self, uuid: str) -> Node:
        return self.service.store.read(lambda tx: tx.nodes.get(uuid))

    def inspection(self, uuid: str) -> Inspection:
        ident = str(self.get(uuid).inspection)
        return self.service.store.read(lambda tx: tx.inspections.get(ident))

    def comes_to(self, uuid: str, state: State) -> bool:
        return until(lambda: self.get(uuid).state is state, seconds=SECONDS)

    def steps(self, uuid: str) -> list[str]:
        query = Query(filters={"node": uuid}, sort_key="id")
        return [entry.step for entry in self.service.store.read(lambda tx: tx.journal.list(query))]

    def status(self, lane: Lane) -> str:
        return self.pool.loops()[f"worker-{lane}"]()

    def hangs_over_a_callback(self) -> None:
        """Let the node call back; its hook does not return until it is ``released``."""
        self.hang()
        self.pool.start()
        self.start(NODE)
        assert self.comes_to(NODE, State.WAITING)
        self.call_back(NODE)

    def close(self) -> None:
        self.service.stop.set()
        self.slow.answers.set()
        self.hook.released.set()
        self.pool.join(SECONDS)


Open = Callable[..., Site]


@pytest.fixture
def open_site() -> Iterator[Open]:
    sites = []

    def open_one(base: Settings | None = None, **worker: Any) -> Site:
        base = base or settings()
        options = {"get_timeout": 0.2, "threads": 1, "bmc_slots": 8, **worker}
        changed = msgspec.structs.replace(base, worker=msgspec.structs.replace(base.worker, **options))
        sites.append(Site(Service(changed, real_time=True)))
        return sites[-1]

    yield open_one
    for site in sites:
        site.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor looks after tenths of seconds."""
    monkeypatch.setattr(pool, "_CHECK_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(pool, "_LONG_SECONDS", 0.1)


def test_a_callback_is_processed_while_every_other_bmc_is_silent(open_site: Open) -> None:
    site = open_site(bmc_slots=2)
    site.pool.start()
    site.start(NODE)
    assert site.comes_to(NODE, State.WAITING)
    for number in range(2):
        site.start(site.node(number, "slow"))
    assert site.slow.asked.wait(SECONDS)
    site.call_back(NODE)
    assert until(lambda: "processed" in site.steps(NODE), seconds=SECONDS)


def test_what_follows_is_handed_over_under_the_same_claim(open_site: Open) -> None:
    site = open_site()
    site.pool.start()
    site.start(NODE)
    assert site.comes_to(NODE, State.WAITING)
    taken: list[Any] = []
    reserve = site.service.worker.reserve
    site.service.worker.reserve = lambda *asked: taken.append(reserve(*asked)) or taken[-1]  # type: ignore[func-returns-value]
    site.call_back(NODE)
    assert site.comes_to(NODE, State.FINISHED)
    assert len(taken) == 1
    assert taken[0] is not None


def test_without_a_slot_the_end_waits_on_the_queue_and_goes_first(open_site: Open) -> None:
    site = open_site(bmc_slots=1)
    site.pool.start()
    site.start(NODE)
    assert site.comes_to(NODE, State.WAITING)
    site.start(site.node(1, "slow"))
    assert site.slow.asked.wait(SECONDS)
    behind = site.node(2)
    site.start(behind)
    site.call_back(NODE)
    assert until(lambda: "processed" in site.steps(NODE), seconds=SECONDS)
    assert [request.event for request in site.service.pending] == [Event.FINISH]
    assert site.inspection(NODE).clock_since is None, "its end is decided, and it waits for us"
    machine = site.service.machine
    machine.commands.clear()
    site.slow.answers.set()
    assert site.comes_to(NODE, State.FINISHED)
    assert machine.commands[0] == "power off"
    assert site.comes_to(behind, State.WAITING)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("event", [Event.ABORT, Event.DELETE])
def test_a_hook_that_does_not_return_frees_its_node_for_whoever_ends_it(open_site: Open, event: Event) -> None:
    site = open_site()
    site.hangs_over_a_callback()
    assert site.hook.entered.wait(SECONDS)
    other = site.node(1)
    site.start(other)
    assert site.comes_to(other, State.WAITING)
    site.submit(NODE, event)
    if event is Event.ABORT:
        assert site.comes_to(NODE, State.ERROR)
        assert site.inspection(NODE).reason == Reason.ABORTED
        assert "given up" in site.steps(NODE)
    else:
        assert until(lambda: not site.service.store.read(lambda tx: tx.requests.pending(NODE)), seconds=SECONDS)
    assert "the hook stuck" in site.status(Lane.COMPUTE)
    site.submit(other, Event.ABORT)
    assert site.comes_to(other, State.ERROR)
    site.hook.released.set()
    assert site.hook.left.wait(SECONDS)
    assert until(lambda: "the hook stuck" not in site.status(Lane.COMPUTE), seconds=SECONDS)
    if event is Event.ABORT:
        assert site.get(NODE).state is State.ERROR
        assert "late" not in site.get(NODE).extra, "the fence refuses what it did"


@pytest.mark.usefixtures("quick")
def test_a_hook_that_takes_longer_than_the_time_out_ends_its_inspection_and_no_other(open_site: Open) -> None:
    site = open_site(settings(timeout=0.5))
    site.hangs_over_a_callback()
    assert site.comes_to(NODE, State.ERROR)
    assert site.inspection(NODE).reason == Reason.PROCESSING_TIMEOUT
    assert "the hook stuck" in str(site.get(NODE).last_error)


def test_a_graceful_stop_has_one_deadline_and_costs_no_attempt(open_site: Open) -> None:
    site = open_site()
    site.hangs_over_a_callback()
    assert site.hook.entered.wait(SECONDS)
    threading.Timer(1.0, site.hook.released.set).start()
    site.service.stop.set()
    assert site.pool.join(SECONDS), "it is given all of the time, not a share of it"
    assert site.hook.left.is_set()


def test_what_still_runs_at_the_deadline_is_given_back_uncounted(open_site: Open) -> None:
    site = open_site()
    site.hangs_over_a_callback()
    assert site.hook.entered.wait(SECONDS)
    slow = site.node(1, "slow")
    site.start(slow)
    assert site.slow.asked.wait(SECONDS)
    site.service.stop.set()
    assert not site.pool.join(0.2)
    pending = site.service.store.read(lambda tx: [*tx.requests.pending(NODE), *tx.requests.pending(slow)])
    assert [(request.event, request.attempt) for request in pending] == [(Event.CONTINUE, 0), (Event.INSPECT, 0)]
    assert site.inspection(slow).clock_since is None
    site.hook.released.set()
    assert site.hook.left.wait(SECONDS)
    assert "late" not in site.get(NODE).extra


def test_threads_end_when_there_is_nothing_to_do_for_them(open_site: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_IDLE_SECONDS", 0.05)
    site = open_site()
    site.pool.start()
    site.start(NODE)
    assert site.comes_to(NODE, State.WAITING)
    assert until(
        lambda: not [one for one in threading.enumerate() if one.name.startswith("worker-bmc-")], seconds=SECONDS
    )
    site.submit(NODE, Event.ABORT)
    assert site.comes_to(NODE, State.ERROR)
