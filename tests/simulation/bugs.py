"""Planted bugs: each is a patch of the product's own code that the simulation must find.

A simulation that finds nothing proves little unless it can be seen to find things. Every bug here is one
that a service of this kind has had, or that this one had until the simulation found it. ``seeds`` is
within how many seeds, from 1 on, it has to be found; the suite fails where it is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec
from sqlalchemy import bindparam, select, update

from ferroscope import election, transition
from ferroscope.adapters.gate import nftables
from ferroscope.adapters.sql import leases, queue, records, requests, session, store
from ferroscope.domain.outcome import Retry
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import Event
from ferroscope.ports.errors import ClaimLostError, LeaseLostError, StoreUnavailableError
from ferroscope.ports.gate import GateError
from ferroscope.pxe import gate, opening
from ferroscope.worker import context as worker_context
from ferroscope.worker import loop, settle, throttle
from ferroscope.worker.tasks import start
from tests.simulation.scenario import Scenario, elections, from_seed, gates, takeovers

KINDS: dict[str, Callable[..., Scenario]] = {
    "all": from_seed,
    "elections": elections,
    "takeovers": takeovers,
    "gates": gates,
}
Patch = Callable[[], AbstractContextManager[object]]


class Bug(msgspec.Struct, frozen=True):
    """``what`` says it in a sentence; ``focus`` are the changes to each seed's scenario, if any."""

    name: str
    what: str
    patch: Patch
    seeds: int
    kind: str
    focus: Mapping[str, Any]

    def scenario(self, seed: int) -> Scenario:
        """Return what this seed means where the bug is looked for."""
        return KINDS[self.kind](seed, **self.focus)


BUGS: dict[str, Bug] = {}


def bug(
    name: str, what: str, *, seeds: int, kind: str = "all", **focus: Any
) -> Callable[[Callable[[], Iterator[Any]]], Patch]:
    """Register a generator of ``(where, name, replacement)`` as a bug."""

    def register(replacements: Callable[[], Iterator[Any]]) -> Patch:
        @contextmanager
        def patch() -> Iterator[None]:
            with ExitStack() as stack:
                for where, attribute, replacement in replacements():
                    if isinstance(where, dict):
                        stack.enter_context(mock.patch.dict(where, {attribute: replacement}))
                    else:
                        stack.enter_context(mock.patch.object(where, attribute, replacement))
                yield

        BUGS[name] = Bug(name, what, patch, seeds, kind, focus)
        return patch

    return register


_r, _l = requests._r, leases._l

# Heartbeats and renewals do not arrive, and processes freeze within transactions.
_FROZEN: dict[str, Any] = {
    "faults": ("pause in transaction", "pause in transaction", "deaf heart", "deaf heart", "pause"),
    "mean_between_faults": 2.0,
}
# And leaders have something to write all the time.
_BUSY_LEADERS: dict[str, Any] = {
    **_FROZEN,
    "dumb": 0.7,
    "inspector": {"timeout": 6.0, "timeout_period": 1.0, "retention": 5.0, "retention_period": 1.0},
}
# Only what makes a worker wake up in a transaction of a claim that somebody else has got since.
_OVERTAKEN: dict[str, Any] = {
    "faults": ("pause in transaction", "pause in transaction", "deaf heart", "deaf heart"),
    "mean_between_faults": 1.0,
    "active": 70.0,
    "rounds": 4,
    "nodes": 6,
    "hosts": 3,
    "worker": {"member_ttl": 3.0, "threads": 2, "interrupted": "rerun"},
}
# The same of offices that change hands all the time.
_DEPOSED: dict[str, Any] = {
    "kind": "takeovers",
    "faults": ("pause in transaction", "pause in transaction", "deaf heart", "pause"),
    "active": 30.0,
}


# Fences.


@bug("lease-select", "the leader's fence is a SELECT of the lease instead of an UPDATE", seeds=40, **_DEPOSED)
def _() -> Iterator[Any]:
    yield leases, "_TOUCH", select(_l.name).where(*leases._MINE, _l.holder.is_not(None))


@bug("claim-select", "the claim's fence is a SELECT of the request instead of an UPDATE", seeds=40, **_OVERTAKEN)
def _() -> Iterator[Any]:
    looked = select(_r.id).where(*requests._MINE)
    blind = update(requests.schema.requests).where(_r.id == bindparam("_id"))

    def hold(self: Any, claim: Any, *, begun: bool = False, progress: Any = None) -> None:
        mine = {"_id": claim.request.id, "_token": claim.token, "_attempt": claim.request.attempt}
        if not self._tx.run(looked, mine).rows:
            raise ClaimLostError("not mine")
        if begun:
            self._tx.run(blind_begun, {"_id": claim.request.id})
        if progress is not None:
            noted = msgspec.json.encode(progress).decode()
            self._tx.run(blind_progress, {"_id": claim.request.id, "_progress": noted})

    blind_begun = blind.values(begun=True)
    blind_progress = blind.values(progress=bindparam("_progress"))
    yield requests.SqlRequests, "hold", hold


@bug("no-fence", "a leader writes without any fence", seeds=40, **_BUSY_LEADERS)
def _() -> Iterator[Any]:
    yield election.Tenure, "fence", lambda _self, _tx: None


@bug("finish-unchecked", "what ends a request does not ask whether the attempt is still mine", seeds=40, **_FROZEN)
def _() -> Iterator[Any]:
    by_id = _r.id == bindparam("_id")
    yield requests, "_CONSUME", _without(requests._CONSUME, by_id)
    yield requests, "_TURN", _without(requests._TURN, by_id)


@bug("retry-unchecked", "giving a request back does not ask whether the attempt is still mine", seeds=40, **_FROZEN)
def _() -> Iterator[Any]:
    yield requests, "_RETRY", _without(requests._RETRY, _r.id == bindparam("_id"))


@bug("renew-by-name", "a renewal matches the lease's name alone, so it renews the successor's", seeds=60, **_FROZEN)
def _() -> Iterator[Any]:
    yield leases, "_RENEW", _without(leases._RENEW, _l.name == bindparam("_name"))


def _without(statement: Any, condition: Any) -> Any:
    """Return the statement with ``condition`` as its only one."""
    copy = statement._generate()
    copy._where_criteria = (condition,)
    return copy


# Leaders.


@bug("renewal-error-ignored", "a leader whose renewal is refused goes on as if it were granted", seeds=20)
def _() -> Iterator[Any]:
    def renew(self: Any) -> bool:
        asked_at = self._clock.monotonic()
        with contextlib.suppress(LeaseLostError, StoreUnavailableError):
            self.lease = self._store.write(lambda tx: tx.leases.renew(self.lease, self._profile.ttl))
        self._trusted_until = election.trusted_until(asked_at, self._profile)
        return True

    yield election.Tenure, "renew", renew


@bug(
    "renewal-despite-hang", "the lease is renewed although the leader's work hangs", seeds=30, faults=("hang", "pause")
)
def _() -> Iterator[Any]:
    renew = election.Tenure.renew

    def stubborn(self: Any) -> bool:
        self.progress()
        return renew(self)

    yield election.Tenure, "renew", stubborn


@bug(
    "trust-from-answer",
    "the holder trusts its lease from the answer on, not from the question",
    seeds=60,
    faults=("slow network", "partition"),
    mean_between_faults=2.0,
    nodes=1,
)
def _() -> Iterator[Any]:
    stand, renew = election.Candidate.stand, election.Tenure.renew

    def late_stand(self: Any) -> Any:
        tenure = stand(self)
        if tenure is not None:
            tenure._trusted_until = election.trusted_until(self._clock.monotonic(), self._profile)
        return tenure

    def late_renew(self: Any) -> bool:
        done = renew(self)
        if done:
            self._trusted_until = election.trusted_until(self._clock.monotonic(), self._profile)
        return done

    yield election.Candidate, "stand", late_stand
    yield election.Tenure, "renew", late_renew


@bug(
    "no-margin",
    "the holder trusts its lease to its very end, whatever its clock's rate",
    seeds=40,
    faults=("partition", "pause", "deaf heart"),
    clock_spread=0.1,
)
def _() -> Iterator[Any]:
    yield election, "trusted_until", lambda asked_at, profile: asked_at + profile.ttl


@bug("release-forgotten", "a process that stops keeps its leases", seeds=10)
def _() -> Iterator[Any]:
    def resign(self: Any) -> None:
        self._resigned = self._over = True

    yield election.Tenure, "resign", resign
    yield records, "_FREE_LEASES", records._FREE_LEASES.where(_l.epoch < 0)


# Claims and the queue.


@bug("acknowledge-first", "a request is taken off the queue before its task has run", seeds=3)
def _() -> Iterator[Any]:
    prepare, consume = loop.Worker.prepare, requests.SqlRequests.consume

    def prepared(self: Any, tx: Any, claim: Any, **options: Any) -> Any:
        result = prepare(self, tx, claim, **options)
        consume(tx.requests, claim)
        return result

    yield loop.Worker, "prepare", prepared
    yield requests.SqlRequests, "consume", lambda _self, _claim: None
    yield requests.SqlRequests, "hold", lambda _self, _claim, **_noted: None


@bug("orphans-kept", "what dead members hold is never freed", seeds=20)
def _() -> Iterator[Any]:
    yield queue.SqlQueue, "_free_orphans", lambda _self, _holder: None


@bug("node-not-locked", "a claim does not lock its node", seeds=20)
def _() -> Iterator[Any]:
    mine = {name: value for name, value in queue._MINE.items() if name != "claimed_node"}
    free = (
        select(_r.id)
        .where(_r.holder.is_(None), _r.due_at <= queue.db_now())
        .order_by(_r.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    table = queue.schema.requests
    yield queue, "_NEXT", free
    yield (
        queue,
        "_CLAIM",
        update(table).where(_r.id == free.scalar_subquery()).values(mine).returning(*requests.REQUEST.columns),
    )
    yield queue, "_CLAIM_ID", update(table).where(_r.id == bindparam("_id"), _r.holder.is_(None)).values(mine)


@bug("node-stays-locked", "giving a request back leaves its node locked", seeds=20)
def _() -> Iterator[Any]:
    statement = requests._RETRY._generate()
    kept = {
        column: value
        for column, value in statement._values.items()
        if str(getattr(column, "key", column)) != "claimed_node"
    }
    statement._values = type(statement._values)(kept)
    yield requests, "_RETRY", statement


@bug("put-outside", "the request is put on the queue after the transaction that changes the state", seeds=3)
def _() -> Iterator[Any]:
    put, write = requests.SqlRequests.put, store.SqlStore.write

    def later(self: Any, request: Any, *, instead_of: Any = None) -> Any:
        if instead_of is not None:
            return put(self, request, instead_of=instead_of)
        late = self._tx.__dict__.setdefault("late", [])
        late.append(request)
        return None

    def written(self: Any, work: Any, *, durable: bool = True) -> Any:
        late: list[Any] = []

        def noting(tx: Any) -> Any:
            result = work(tx)
            late[:] = tx.__dict__.get("late", [])
            return result

        result = write(self, noting, durable=durable)
        for request in late:
            write(self, lambda tx, request=request: put(tx.requests, request), durable=durable)
        return result

    yield requests.SqlRequests, "put", later
    yield store.SqlStore, "write", written


@bug(
    "claims-doubted-not",
    "a claim whose answer was lost is forgotten, and held for ever",
    seeds=40,
    faults=("broken connections",),
    mean_between_faults=3.0,
)
def _() -> Iterator[Any]:
    yield queue.SqlQueue, "_free_doubtful", lambda self: self._doubtful.clear()
    yield from _own_claims_not_looked_at()


@bug(
    "own-claims-trusted",
    "a process never looks whether it still knows of what it holds (found by this simulation)",
    seeds=60,
    faults=("lost tail", "power failure", "broken connections"),
)
def _() -> Iterator[Any]:
    yield from _own_claims_not_looked_at()


def _own_claims_not_looked_at() -> Iterator[Any]:
    orphans = select(_r.id, _r.holder, _r.token).where(
        _r.holder.is_not(None), ~queue._ALIVE, _r.holder != bindparam("_me")
    )
    yield queue, "_ORPHANS", orphans


@bug(
    "same-token",
    "what follows is held under the token of what was before (found by this simulation)",
    seeds=100,
    faults=("lost tail",),
    mean_between_faults=1.5,
    nodes=8,
    rounds=4,
    slow_bmc=0.2,
    aborts=0.0,
)
def _() -> Iterator[Any]:
    turn = requests.SqlRequests._turn

    def turned(self: Any, claim: Any, request: Any) -> Any:
        with mock.patch.object(requests.uuid, "uuid4", lambda: claim.token):
            result = turn(self, claim, request)
        self._tx.ended.discard(claim.token)
        return result

    yield requests.SqlRequests, "_turn", turned


# The order of state and task.


@bug("strict-after", "the state of a strict event is saved after its task, as if it were reentrant", seeds=3)
def _() -> Iterator[Any]:
    def save(_self: Any, tx: Any, locked: Any, _decision: Any) -> Any:
        tx.requests.hold(locked.claim)
        return locked

    yield loop.Worker, "save", save


@bug("reentrant-before", "the state of a reentrant event is saved before its task, as if it were strict", seeds=20)
def _() -> Iterator[Any]:
    prepared = loop.Worker.prepared

    def eager(self: Any, claim: Any, handed: Any) -> Any:
        locked, decision = prepared(self, claim, handed)
        if not isinstance(decision, loop.Run) or claim.request.event in (Event.CONTINUE, Event.REAPPLY):
            return locked, decision

        def work(tx: Any) -> Any:
            tx.requests.hold(claim)
            node = tx.nodes.get(locked.node.uuid, lock=True)
            return node if node.state is decision.transition.target else transition.apply(tx, node, decision.transition)

        self.persist(work)
        return locked, decision

    yield loop.Worker, "prepared", eager


@bug("intent-after", "the intent of a power-on is recorded after the power-on", seeds=3)
def _() -> Iterator[Any]:
    def power_on(self: Any, context: Any) -> None:
        with self._throttle.turn(context) as turn:
            start.ensure_power(context, start.Power.ON)
            context.intend("power on", turn.fence)

    yield start.StartTask, "_power_on", power_on


@bug(
    "intent-ignored",
    "a rerun does not look whether an earlier attempt has powered the machine on",
    seeds=40,
    faults=("crash", "pause"),
    mean_between_faults=2.0,
    supervised=1.0,
    slow_bmc=0.2,
    nodes=6,
)
def _() -> Iterator[Any]:
    yield worker_context.TaskContext, "intended", lambda _self, _effect: False


@bug(
    "command-moves",
    "a command puts the state back that it found (found by this simulation)",
    seeds=40,
    faults=(),
    commands=0.9,
    slow_bmc=0.3,
    nodes=6,
)
def _() -> Iterator[Any]:
    yield settle, "COMMANDS", frozenset()


@bug(
    "own-save-forgotten",
    "a save whose answer was lost is taken for another callback (found by this simulation)",
    seeds=60,
    faults=("broken connections",),
    mean_between_faults=3.0,
)
def _() -> Iterator[Any]:
    yield loop.Worker, "_has_begun", lambda _self, _tx, _claim: False


@bug(
    "outage-counts",
    "a database that is away costs an attempt (found by this simulation)",
    seeds=100,
    faults=("database restart", "broken connections"),
    mean_between_faults=0.7,
    nodes=8,
    worker={"max_attempts": 2},
)
def _() -> Iterator[Any]:
    run_task = loop.Worker.run_task

    def counting(self: Any, context: Any, decision: Any) -> Any:
        outcome = run_task(self, context, decision)
        if isinstance(outcome, Retry) and outcome.reason is Reason.STORE_UNAVAILABLE:
            if context.request.attempt >= self.settings.worker.max_attempts:
                return loop.Fail(outcome.reason, outcome.message)
            return msgspec.structs.replace(outcome, counted=True)
        return outcome

    yield loop.Worker, "run_task", counting


# The throttle.


@bug("throttle-released-early", "the throttle's lease is released before the sleep", seeds=20)
def _() -> Iterator[Any]:
    @contextmanager
    def turn(self: Any, context: Any) -> Iterator[Any]:
        if self._quantum:
            tenure = self._candidate.stand()
            if tenure is None:
                raise throttle.ThrottledError(self._quantum)
            tenure.resign()
            context.pause(self._quantum)
        yield throttle._UNTHROTTLED

    yield throttle.RebootThrottle, "turn", turn


@bug(
    "throttle-unfenced",
    "whoever slept under the throttle powers on without asking whether the lease is still theirs",
    seeds=60,
    faults=("pause under throttle", "crash"),
    mean_between_faults=4.0,
    worker={"reboot_throttle": 4.0},
    drivers={"command_timeout": 1.0},
    nodes=6,
    rounds=3,
)
def _() -> Iterator[Any]:
    turn = throttle.RebootThrottle.turn

    @contextmanager
    def unfenced(self: Any, context: Any) -> Iterator[Any]:
        with turn(self, context):
            yield throttle._UNTHROTTLED

    yield throttle.RebootThrottle, "_confirm", lambda _self, _tenure: None
    yield throttle.RebootThrottle, "turn", unfenced


@bug(
    "throttle-outlived",
    "a slow BMC powers a machine on after the throttle's lease is over (found by this simulation)",
    seeds=60,
    slow_bmc=0.2,
    worker={"reboot_throttle": 4.0},
)
def _() -> Iterator[Any]:
    begin = throttle.RebootThrottle.__init__

    def short(self: Any, quantum: float, **options: Any) -> None:
        begin(self, quantum, **{**options, "command": 0.0})

    yield throttle.RebootThrottle, "__init__", short


# Durability and connections.


@bug("not-durable", "what is answered 2xx is not flushed", seeds=40)
def _() -> Iterator[Any]:
    write = store.SqlStore.write
    yield store.SqlStore, "write", lambda self, work, *, durable=True: write(self, work, durable=False)


@bug("broken-twice", "a connection that broke is rolled back once more (found by this simulation)", seeds=20)
def _() -> Iterator[Any]:
    def rollback(connection: Any) -> None:
        try:
            session._run(connection, "ROLLBACK")
        except session.DBAPIError:
            connection.invalidate()

    yield session, "rollback", rollback


# PXE gates.


@bug("gate-outlives-lease", "the kernel closes a gate after its lease has ended, not before", seeds=20, kind="gates")
def _() -> Iterator[Any]:
    hold = nftables.NftablesGate.hold
    yield nftables.NftablesGate, "hold", lambda self, until: hold(self, until + 6.0)


@bug("gate-always-seconds", "a gate opens for seconds whatever is left of its lease", seeds=40, kind="gates")
def _() -> Iterator[Any]:
    hold = nftables.NftablesGate.hold
    yield nftables.NftablesGate, "hold", lambda self, _until: hold(self, self._timed._clock.monotonic() + 5.0)


@bug(
    "gate-without-guard",
    "a successor opens as soon as it is elected, and the clock of the one before is slow",
    seeds=60,
    kind="gates",
    clock_spread=0.2,
    faults=("partition", "partition", "deaf heart"),
    hosts=3,
    mean_between_faults=4.0,
    lease={"profile": "default"},
)
def _() -> Iterator[Any]:
    lead = gate.Gate.lead

    def at_once(self: Any, tenure: Any) -> None:
        self._settings = msgspec.structs.replace(self._settings, guard=0.0)
        lead(self, tenure)

    yield gate.Gate, "lead", at_once


@bug("gate-held-after-loss", "a gate is held open although its lease is lost", seeds=20, kind="gates")
def _() -> Iterator[Any]:
    def run(self: Any) -> None:
        while not self._stop.wait(self._period):
            with contextlib.suppress(GateError):
                self._backend.hold(self._clock.monotonic() + 4.0)

    yield opening.Opening, "_run", run


@bug(
    "gate-not-armed",
    "an opening that is late on its way to the kernel opens all the same",
    seeds=60,
    kind="gates",
    faults=("slow firewall", "pause", "crash", "partition"),
    mean_between_faults=3.0,
    lease={"profile": "fast"},
)
def _() -> Iterator[Any]:
    def let_pass(self: Any, timeout: float) -> None:
        self._load(f"flush set {self._table} open", self._let_pass(timeout))

    yield nftables.NftablesGate, "open", lambda self, _ticket, timeout: let_pass(self, timeout)
    yield nftables.NftablesGate, "refresh", let_pass


@bug("gate-resigns-open", "the office is handed on while its gate is still open", seeds=20, kind="gates")
def _() -> Iterator[Any]:
    def end(self: Any) -> bool:
        self._stop.set()
        return True

    yield opening.Opening, "end", end
    yield gate.Gate, "fail_closed", lambda _self: None


# Stopping.


@bug("takes-on", "a worker that was asked to stop goes on taking requests", seeds=20)
def _() -> Iterator[Any]:
    get, run = queue.SqlQueue.get, loop.Worker.run

    def go_on(self: Any) -> None:
        run(self)
        while True:
            with contextlib.suppress(StoreUnavailableError):
                self.step()

    yield (
        queue.SqlQueue,
        "get",
        lambda self, holder, timeout, stop: get(self, holder, timeout, type(stop)(stop._kernel)),
    )
    yield loop.Worker, "run", go_on
