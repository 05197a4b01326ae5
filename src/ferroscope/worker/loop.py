"""The worker's loop: get, lock, decide, save, run, follow, consume or retry; a function each.

Lock, decide and save share one transaction; so do the task's results, the new state, what
follows and the request's end. Whoever dies in between leaves a request that is delivered again.
Source: the HA worker of the HA specification for ironic-inspector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.config.settings import Settings
from ferroscope.domain.decision import Decision, Run, decide
from ferroscope.domain.machine import advance
from ferroscope.domain.merge import three_way
from ferroscope.domain.model import Claim, Node, Request, Severity
from ferroscope.domain.outcome import Drop, Fail, Next, Outcome, Retry
from ferroscope.domain.provision import Provision
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import Event, State
from ferroscope.ports.bmc import Bmc
from ferroscope.ports.clock import Clock, StopFlag
from ferroscope.ports.errors import (
    BmcError,
    ClaimLostError,
    ConflictError,
    NotFoundError,
    StoreUnavailableError,
)
from ferroscope.ports.queue import Queue
from ferroscope.ports.store import Query, Store, Transaction
from ferroscope.worker.context import StoppedError, TaskContext

T = TypeVar("T")
Task = Callable[[TaskContext], Outcome]

_log = structlog.get_logger(__name__)


class Worker:
    """One thread of the pool. ``sentence`` always says what it did last."""

    def __init__(
        self,
        *,
        store: Store,
        queue: Queue,
        tasks: Mapping[Event, Task],
        drivers: Mapping[str, Bmc],
        settings: Settings,
        clock: Clock,
        stop: StopFlag,
        member: str,
        process: str,
    ) -> None:
        self.store = store
        self.queue = queue
        self.tasks = tasks
        self.drivers = drivers
        self.settings = settings
        self.clock = clock
        self.stop = stop
        self.member = member
        self.process = process
        self.sentence = "has not asked for a request yet"

    def run(self) -> None:
        """Work until the stop flag is set; a fault of the loop itself stops the process.

        What the process held is then free, and a poisonous request ends after its last attempt.
        """
        while not self.stop.is_set():
            try:
                self.sentence = self.step()
            except StoreUnavailableError as exc:
                self.sentence = f"waits for the database: {exc}"
                _log.warning("the database is unavailable", error=str(exc))
                self.stop.wait(self.settings.worker.retry_delay)
            except Exception:
                _log.exception("the worker's loop failed; stopping the process")
                self.stop.set()
                raise

    def step(self) -> str:
        """Take one request, carry it and whatever follows from it out; return what happened."""
        claim = self.get()
        if claim is None:
            return "found no request that is due"
        said = ""
        while claim is not None:
            said, claim = self.carry_out(claim)
        return said

    def carry_out(self, claim: Claim) -> tuple[str, Claim | None]:
        """Carry out one claimed request; return what happened and the claim that follows, if any."""
        request = claim.request
        what = f"{request.event} of node {request.node}"
        try:
            context, decision = self.persist(lambda tx: self.prepare(tx, claim), durable=False)
        except NotFoundError:
            self.persist(lambda tx: self.give_up(tx, claim))
            return f"found no node for {what}", None
        except ClaimLostError:
            return f"lost {what} to another worker", None
        try:
            outcome = self.run_task(context, decision) if isinstance(decision, Run) else decision
            follow = self.persist(lambda tx: self.conclude(tx, context, decision, outcome))
        except ClaimLostError:
            return f"lost {what} to another worker while it ran", None
        except NotFoundError:
            return f"node of {what} was deleted meanwhile", None
        except ConflictError as exc:
            again = Retry(self.settings.worker.retry_delay, Reason.PORT_CONFLICT, str(exc))
            follow = self.persist(lambda tx: self.conclude(tx, context, decision, again))
        _log.info(
            "request carried out", request=request.event, node=request.node, outcome=type(outcome).__name__.lower()
        )
        return f"carried out {what}: {type(outcome).__name__.lower()}", follow

    def prepare(self, tx: Transaction, claim: Claim) -> tuple[TaskContext, Decision]:
        """Lock, decide and save, in one transaction."""
        node = self.lock(tx, claim)
        decision = self.decide(node, claim.request)
        if isinstance(decision, Run):
            node = self.save(tx, claim, node, decision)
        inspection = tx.inspections.get(node.inspection) if node.inspection else None
        context = TaskContext(
            claim=claim,
            node=node,
            inspection=inspection,
            ports=list(tx.ports.list(Query(filters={"node": node.uuid}))),
            rerun=isinstance(decision, Run) and decision.rerun,
            store=self.store,
            bmc=self.drivers.get(node.driver),
            settings=self.settings,
            clock=self.clock,
            stop=self.stop,
            process=self.process,
        )
        return context, decision

    # The seven steps.

    def get(self) -> Claim | None:
        """Claim a request; None when there was none in time or the process shall stop."""
        return self.queue.get(self.member, self.settings.worker.get_timeout, self.stop)

    def lock(self, tx: Transaction, claim: Claim) -> Node:
        """Make sure that the claim, which is the node's lock, is still mine; return the node."""
        tx.requests.hold(claim)
        return tx.nodes.get(claim.request.node, lock=True)

    def decide(self, node: Node, request: Request) -> Decision:
        """Let the machine take the event."""
        return decide(node, request, self.settings.worker.delivery())

    def save(self, tx: Transaction, claim: Claim, node: Node, decision: Run) -> Node:
        """Save the target state of a strict event before its task runs; reentrant ones come after."""
        if not decision.transition.strict or claim.request.begun:
            return node
        tx.requests.hold(claim, begun=True)
        return transition.apply(tx, node, decision.transition)

    def run_task(self, context: TaskContext, decision: Run) -> Outcome:
        """Run the task; every failure becomes an outcome."""
        if decision.rerun:
            context.note("delivered again", f"attempt {context.request.attempt} of {context.request.event}")
        try:
            outcome = self.tasks[context.request.event](context)
        except StoppedError:
            return Retry(0.0, Reason.INTERRUPTED, "the worker was asked to stop", counted=False)
        except BmcError as exc:
            reason = Reason.BMC_UNREACHABLE if exc.transient else Reason.BMC_REFUSED
            outcome = self._again(reason, str(exc)) if exc.transient else Fail(reason, str(exc))
        except ClaimLostError:
            raise
        except StoreUnavailableError as exc:
            outcome = self._again(Reason.STORE_UNAVAILABLE, str(exc))
        except Exception as exc:  # noqa: BLE001  # the boundary: a task's bug must not take the worker along
            _log.exception("task failed", request=context.request.event, node=context.node.uuid)
            outcome = self._again(Reason.INTERNAL, f"{type(exc).__name__} in {context.request.event}")
        if (
            isinstance(outcome, Retry)
            and outcome.counted
            and context.request.attempt >= self.settings.worker.max_attempts
        ):
            return Fail(outcome.reason, f"{outcome.message}; gave up after {context.request.attempt} attempts")
        return outcome

    def follow(self, tx: Transaction, claim: Claim, node: Node, event: Event) -> Claim | None:
        """Put the event that follows on the queue; mine at once, unless others wait for this node."""
        request = Request(node=node.uuid, event=event, inspection=node.inspection)
        if len(tx.requests.pending(node.uuid)) == 1:
            return tx.requests.put(request, instead_of=claim)
        tx.requests.consume(claim)
        tx.requests.put(request)
        return None

    def retry(self, tx: Transaction, context: TaskContext, outcome: Retry) -> None:
        """Leave the request for later and release the node."""
        tx.requests.retry(context.claim, outcome.after, counted=outcome.counted)
        if outcome.counted:
            detail = {"after": outcome.after}
            context.note("retry", outcome.message, severity=Severity.WARNING, reason=outcome.reason, detail=detail)
        context.save_notes(tx)

    def consume(self, tx: Transaction, claim: Claim) -> None:
        """Take the request off the queue, which releases the node."""
        tx.requests.consume(claim)

    # What the steps are made of.

    def conclude(self, tx: Transaction, context: TaskContext, decision: Decision, outcome: Outcome) -> Claim | None:
        """Commit all that an attempt led to: changes, state, what follows, the request's end."""
        noted = len(context.notes)
        try:
            if isinstance(outcome, Retry):
                self.retry(tx, context, outcome)
                return None
            if isinstance(outcome, Next) and outcome.event in self.tasks:
                node = tx.nodes.get(context.node.uuid, lock=True)
                claim = self.follow(tx, context.claim, node, outcome.event)
            else:
                self.consume(tx, context.claim)
                node = tx.nodes.get(context.node.uuid, lock=True)
                claim = None
            self._settle(tx, context, node, decision, outcome)
            context.save_notes(tx)
        finally:
            del context.notes[noted:]  # the transaction may be run again
        return claim

    def _settle(self, tx: Transaction, context: TaskContext, node: Node, decision: Decision, outcome: Outcome) -> None:
        if isinstance(outcome, Drop):
            context.note("dropped", outcome.message, severity=Severity.WARNING, reason=outcome.reason)
            return
        if isinstance(outcome, Fail):
            self._settle_failure(tx, context, node, decision, outcome)
            return
        node = three_way(context.before, context.node, node)
        self._save_ports(tx, context)
        if context.parts and node.inspection:
            tx.data.save(node.inspection, node.uuid, context.parts)
        steps = [decision.transition] if isinstance(decision, Run) else []
        if isinstance(outcome, Next) and outcome.event not in self.tasks:
            steps.append(advance(steps[-1].target, outcome.event))
        moves = [step for step in steps if step.target is not node.state]
        for move in moves:
            node = transition.apply(tx, node, move)
            context.node = msgspec.structs.replace(context.node, state=node.state)
            context.note(str(node.state), f"the inspection is {node.state}")
        if context.request.event is Event.VERIFY:
            transition.rest(tx, node, Provision.MANAGEABLE)
        elif not moves:
            tx.nodes.update(node)

    def _settle_failure(
        self, tx: Transaction, context: TaskContext, node: Node, decision: Decision, outcome: Fail
    ) -> None:
        node = msgspec.structs.replace(node, power_state=context.node.power_state)
        if isinstance(decision, Run) and decision.transition.target is State.ERROR:
            transition.apply(tx, node, decision.transition, failure=outcome)
        else:
            transition.fail(tx, node, outcome)
        context.note("failed", outcome.message, severity=Severity.ERROR, reason=outcome.reason)

    def _save_ports(self, tx: Transaction, context: TaskContext) -> None:
        changes = context.port_changes
        if changes.removed:
            tx.ports.remove(changes.removed)
        if changes.added:
            tx.ports.add(changes.added)
        for port in changes.updated.values():
            tx.ports.update(port)

    def give_up(self, tx: Transaction, claim: Claim) -> None:
        """An unknown node: try again later, in the end consume the request."""
        if claim.request.attempt < self.settings.worker.max_attempts:
            tx.requests.retry(claim, self.settings.worker.retry_delay)
        else:
            tx.requests.consume(claim)

    def persist(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Write, however long the database is away; raise only when the process shall stop."""
        while True:
            try:
                return self.store.write(work, durable=durable)
            except StoreUnavailableError:
                if self.stop.wait(self.settings.worker.retry_delay):
                    raise

    def _again(self, reason: Reason, message: str) -> Retry:
        return Retry(self.settings.worker.retry_delay, reason, message)
