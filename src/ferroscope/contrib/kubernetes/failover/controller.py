"""The controller: has failed nodes examined, stores each decision, then carries out its effects. All effects are here.

It is level-triggered: each pass reads everything that it decides on. A watch only ends the pause between two passes.
A record is stored under the fence of the lease before the effects that it announces, so a leader that has lost its
lease begins nothing; and what it has begun carries the resource version that it read, so a late call changes nothing.
Immediately before each irreversible effect, the age of its evidence is checked.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from ferroscope.contracts.errors import LeaseLostError, NotFoundError, StoreError, StoreUnavailableError
from ferroscope.contracts.store import Clock, Query
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.contrib.kubernetes.failover.bmc_calls import BmcCalls, MachinePower
from ferroscope.contrib.kubernetes.failover.case import call_due_at
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.findings import MAX_FAILED_PASSES, find_problems
from ferroscope.contrib.kubernetes.failover.machine_list import differs
from ferroscope.contrib.kubernetes.failover.protection import NodeCheck, ProtectionCheck, check_nodes
from ferroscope.contrib.kubernetes.failover.reading import ClusterReader, NodePlan
from ferroscope.contrib.kubernetes.failover.refusals import Refusals
from ferroscope.contrib.kubernetes.failover.terms import (
    DeleteAttachment,
    DeletePod,
    Effect,
    FailoverRules,
    Inspect,
    PowerOff,
    PowerOn,
    SetCondition,
    SetTaint,
    is_aged,
    is_forced,
)
from ferroscope.core.delivery import IllegalEventError, NotInspectableError
from ferroscope.core.failover_node import FailoverNode
from ferroscope.core.model import Entry, Severity
from ferroscope.core.remediation import Proof, Remediation
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership, StoppingError
from ferroscope_client.core.finding import Finding

_log = structlog.get_logger(__name__)

LEASE: Final = "failover/"
_POLL_SECONDS: Final = 0.2  # seconds between two looks whether a pass is due
# Seconds between two passes over all nodes, in which only leases are read while nothing has failed; a failure wakes it.
PASS_SECONDS: Final = 10.0
_BUSY_SECONDS: Final = 1.0  # seconds between two passes while a remediation is in progress
# After so many seconds in which nothing was done or stored, no deadline of a remediation is left but that of a call for
# people: then a pass is made every ``FULL_PASS_SECONDS``, or as soon as there is news.
SETTLED_SECONDS: Final = 120.0
FULL_PASS_SECONDS: Final = 180.0
_REST_SECONDS: Final = 1.0  # for which a step then waits for news of the watch, as it has nothing else to do
# So long after it was decided may a power command be sent.
MAX_COMMAND_DELAY_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 1.5  # seconds for which a pass waits for a BMC; most answer within one
_WARNINGS: Final = frozenset(
    {
        "failed",
        "power-off",
        "proven",
        "forcing",
        "tainted",
        "without-proof",
        "was-alive",
        "left-off",
        "machine-contradicts",
        "gave-up",
        "confirmation-ignored",
    }
)


class Failover:
    """A periodic task (see ``periodic.singleton``): passes when ``wake`` is set, and every ten seconds.

    While a remediation is in progress it passes every second, and as soon as a late answer of a BMC is there.
    """

    def __init__(
        self,
        kube: Kubernetes,
        power: MachinePower,
        store: Store,
        rules: FailoverRules,
        *,
        cluster: str,
        clock: Clock,
        api_servers: Sequence[str] = (),
        resync: float = PASS_SECONDS,
        dry_run: bool = False,
        process: str = "",
        meter: Meter = SILENT,
        wake: threading.Event | None = None,
        inspect: Callable[[Transaction, str], None] | None = None,
    ) -> None:
        self.name = LEASE + cluster
        self.period = _POLL_SECONDS
        self._kube = kube
        self._store = store
        self._rules = rules
        self._calls = BmcCalls(power, clock)
        # Calls of their own: they must not keep those about failed nodes waiting.
        self._check = ProtectionCheck(kube, BmcCalls(power, clock), store, rules, cluster=cluster, clock=clock)
        self._refusals = Refusals(clock)
        self._reader = ClusterReader(
            kube,
            self._calls,
            store,
            rules,
            cluster=cluster,
            clock=clock,
            api_servers=api_servers,
            refused=self._refusals.given_up,
        )
        self.problems: Sequence[Finding] = ()
        self._failed_passes = 0
        self._cluster = cluster
        self._clock = clock
        self._resync = resync
        self._dry_run = dry_run
        self._process = process
        self._meter = meter
        self._inspect = inspect
        self._wake, self._is_watched = wake or threading.Event(), wake is not None
        # When the next look is due, and when the last pass began, and the last time that one did or stored something.
        self._next_at = self._passed_at = self._acted_at = -math.inf
        self._epoch = 0
        self._status = "has not looked at the cluster yet"

    def close(self) -> None:
        """Start nothing new."""
        self._calls.close()
        self._check.close()

    @property
    def unprotected_nodes(self) -> Sequence[FailoverNode]:
        """The ready nodes whose failures would not be dealt with, with ``problem`` and ``message``, by name."""
        return self._check.unprotected_nodes

    def plan(self) -> list[NodePlan]:
        """Return every node that has failed, or has a record, with what would be done now; change nothing."""
        return list(self._reader.look())

    def check(self) -> list[NodeCheck]:
        """Return for every node whether its failure would be dealt with, asking all BMCs now; change nothing."""
        return check_nodes(self._kube, self._calls, self._store, cluster=self._cluster, clock=self._clock)

    def follow(self) -> None:
        """See ``periodic.singleton.Follows``."""
        self._reader.follow()
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + self._resync
        try:
            self._reader.has_news(lambda: None)
        except KubernetesError as exc:
            self._next_at = now + max(_BUSY_SECONDS, exc.retry_after)
            _log.warning("cannot read the cluster", cluster=self._cluster, error=str(exc), status=exc.status)

    def step(self, leading: StepLeadership) -> str:
        """Pass once, if it is time to; return a status."""
        now = self._clock.monotonic()
        if leading.epoch != self._epoch:  # nothing that an earlier leader has begun is settled
            self._epoch, self._acted_at, self._next_at, self._passed_at = leading.epoch, now, -math.inf, -math.inf
        if self._is_watched and now < self._next_at and self._is_calm(now):
            self._wake.wait(min(_REST_SECONDS, self._next_at - now))
            now = self._clock.monotonic()
        if now < self._next_at and not self._wake.is_set() and not self._calls.has_answers():
            self._look_ahead(leading)
            return self._status
        if self._is_calm(now) and not self._has_news(leading):
            self._next_at = now + self._resync
            self._look_ahead(leading)
            return self._status
        self._wake.clear()
        try:
            for plan in self._reader.look(leading.keep_alive, epoch=leading.epoch, patience=_PATIENCE_SECONDS):
                self._carry_out(leading, plan)
        except KubernetesError as exc:
            self._next_at, self._passed_at = now + max(_BUSY_SECONDS, exc.retry_after), -math.inf
            self._failed_passes += 1
            self._status = f"cannot read the cluster: {exc}"
            _log.warning("cannot read the cluster", cluster=self._cluster, error=str(exc), status=exc.status)
            if self._failed_passes >= MAX_FAILED_PASSES:
                self._publish_problems(unreadable=str(exc))
            return self._status
        self._failed_passes = 0
        if not self._reader.open:
            self._refusals.clear()
        self._publish_problems()
        self._passed_at = now
        is_settled = not self._reader.open or now - self._acted_at >= SETTLED_SECONDS
        self._next_at = now + (self._resync if is_settled and not self._reader.waits else _BUSY_SECONDS)
        self._next_at = min(self._next_at, self._clock.monotonic() + self._reader.again_in)
        idle = len(self._reader.idle)
        calm = f"no node has failed; {idle} are not ready, and never were" if idle else "all nodes are ready"
        records = sorted(self._reader.open.values(), key=lambda record: (record.node, record.started_at))
        remediations = [f"{record.node}: {record.message or 'its BMC is asked'}" for record in records]
        paused = [f"paused: {self._reader.paused}"] if self._reader.paused else []
        self._status = "; ".join(paused + remediations) or calm
        self._look_ahead(leading)
        return self._status

    def _look_ahead(self, leading: StepLeadership) -> None:
        """Check a part of the nodes that have not failed; whatever goes wrong there must not stop a fail-over."""
        try:
            self._check.step(leading, self._reader.nodes, self._reader.open)
        except (LeaseLostError, StoppingError, StoreError):
            raise
        except Exception:  # noqa: BLE001  # a fault in the check must not leave pods where they are
            _log.exception("failover: the check of nodes that have not failed has failed", cluster=self._cluster)

    def _is_calm(self, now: float) -> bool:
        """Whether nothing was done or stored for so long that little can change: then most of the reading can wait."""
        if self._wake.is_set() or self._calls.has_answers() or self._reader.waits:
            return False
        records = self._reader.open.values()
        if records and now - self._acted_at < SETTLED_SECONDS:
            return False
        due_at = min(map(call_due_at, records), default=math.inf)
        return now - self._passed_at < FULL_PASS_SECONDS and self._reader.now() < due_at

    def _has_news(self, leading: StepLeadership) -> bool:
        try:
            return self._reader.has_news(leading.keep_alive)
        except KubernetesError as exc:
            _log.warning("cannot read the cluster", cluster=self._cluster, error=str(exc), status=exc.status)
            return True  # the pass meets the same error, and tells it

    def stop_leading(self) -> None:
        """End the alerts: the next leader reports problems."""
        self.problems = ()
        self._meter.set_failover_problems(self._cluster, {})

    def _publish_problems(self, unreadable: str = "") -> None:
        records = list(self._reader.open.values())
        self.problems, numbers = find_problems(
            self._cluster,
            records,
            paused=self._reader.paused,
            unreadable=unreadable,
            unprotected=self.unprotected_nodes,
        )
        self._meter.set_failover_problems(self._cluster, numbers)

    def _carry_out(self, leading: StepLeadership, plan: NodePlan) -> None:
        """Store the record, then carry out its effects, then report them."""
        decision, record = plan.decision, plan.decision.record
        if record is None:
            for effect in () if self._dry_run else decision.effects:
                leading.keep_alive()
                self._apply(plan.reading.name, effect)
            return
        detached = decision.detached
        before = plan.record.log if plan.record is not None else ()
        lines = [*record.log, *(detached.log if detached is not None else ())]
        new = [line for line in lines if line not in before]
        for line in new:
            _log.info("failover", cluster=self._cluster, node=record.node, what=line["what"], text=line["text"],
                      dry_run=self._dry_run)  # fmt: skip
        if self._dry_run or (decision.effects and self._is_outdated(plan)):
            return
        # A pass waits for slow BMCs. If other nodes have failed meanwhile, a power-off would be a part of a storm.
        if any(isinstance(effect, PowerOff) for effect in decision.effects) and self._has_news(leading):
            return
        if decision.effects:
            self._acted_at = self._clock.monotonic()
        if record.doubts_bmc:
            self._check.doubt(record.node, record.machine)
        if detached is not None or _content(record) != _content(plan.record):
            self._acted_at = self._clock.monotonic()
            inspects = any(isinstance(effect, Inspect) for effect in decision.effects)
            self._store.write(lambda tx: self._save(tx, leading, record, new, inspects=inspects, detached=detached))
        asked_at = self._clock.monotonic()
        alive = self._sign_of_life(plan)
        reading = plan.reading
        reading = msgspec.structs.replace(reading, round_trips=reading.round_trips + self._clock.monotonic() - asked_at)
        for effect in decision.effects:
            leading.keep_alive()
            if isinstance(effect, (PowerOff, PowerOn)):
                on = isinstance(effect, PowerOn)
                left = self._right_to_send(leading, plan)
                self._calls.command(record.node, record.machine, on=on, left=left)
            elif is_forced(effect) and alive:
                _log.warning("failover: nothing is forced", node=record.node, step=type(effect).__name__, why=alive)
            elif is_aged(effect, record, reading, self._clock.monotonic(), self._rules):
                _log.info("failover: the observations are outdated", node=record.node, step=type(effect).__name__)
            else:
                self._apply(record.node, effect)
        for line in new:
            self._meter.record_failover_step(line["what"])
            self._record_event(record.node, line["what"], line["text"])

    def _is_outdated(self, plan: NodePlan) -> bool:
        """Whether an operator has changed something since this pass began: the next pass decides again."""
        ident = plan.decision.record.machine if plan.decision.record is not None else ""
        paused, stored = self._store.read(
            lambda tx: (
                tx.remediations.pause_of(self._cluster),
                next(iter(tx.nodes.list(Query(filters={"uuid": (ident,)}))), None) if ident else None,
            )
        )
        machine = plan.reading.settled or plan.reading.match.machine
        changed = machine is not None and machine.uuid == ident and (stored is None or differs(stored, machine))
        if changed or bool(paused) != bool(self._reader.paused):
            _log.info("failover: decided again, because an operator has changed something", node=plan.reading.name)
            return True
        return False

    def _right_to_send(self, leading: StepLeadership, plan: NodePlan) -> Callable[[], float]:
        """Return what says, immediately before a power command is sent, for how many seconds it still may be.

        It may have waited for other BMCs, or for its own. It rests on what was read in this pass, and on nothing that
        an operator has changed since.
        """
        until = self._clock.monotonic() + MAX_COMMAND_DELAY_SECONDS

        def seconds_left() -> float:
            remaining = min(leading.seconds_left(), until - self._clock.monotonic())
            try:
                return 0.0 if remaining <= 0 or self._is_outdated(plan) else remaining
            except StoreUnavailableError:
                return 0.0

        return seconds_left

    def _sign_of_life(self, plan: NodePlan) -> str:
        """Return why nothing may be forced by proof any more, "" if it may: storing the record has taken some time."""
        record, reading = plan.decision.record, plan.reading
        by_proof = record is not None and record.proof in (Proof.POWER_OFF, Proof.CONFIRMED)
        if not by_proof or not any(is_forced(effect) for effect in plan.decision.effects):
            return ""
        try:
            renewed = self._kube.renewal(reading.name) != reading.renewal
        except KubernetesError as exc:
            return f"the kubelet's lease cannot be read: {exc}"
        return "the kubelet has renewed its lease" if renewed else ""

    def _save(
        self,
        tx: Transaction,
        leading: StepLeadership,
        record: Remediation,
        new: Sequence[Mapping[str, Any]],
        *,
        inspects: bool,
        detached: Remediation | None = None,
    ) -> None:
        leading.fence(tx)
        if inspects and self._inspect is not None:
            try:
                self._inspect(tx, record.machine)
            except (IllegalEventError, NotFoundError, NotInspectableError) as exc:
                _log.warning("the machine cannot be inspected", node=record.node, error=str(exc))
        tx.remediations.save(record)
        if detached is not None:
            tx.remediations.save(detached)
        if machine := record.machine or (detached.machine if detached is not None else ""):
            tx.journal.append(
                Entry(
                    node=machine,
                    step="failover",
                    message=f"Kubernetes node {record.node}: {line['text']}",
                    severity=Severity.WARNING if line["what"] in _WARNINGS else Severity.INFO,
                    process=self._process,
                    detail={"cluster": self._cluster, "kubernetes_node": record.node, "what": line["what"]},
                )
                for line in new
            )

    def _apply(self, node: str, effect: Effect) -> None:
        key = _subject(effect)
        if not self._refusals.is_due(key):
            return
        try:
            if isinstance(effect, SetTaint):
                self._kube.set_out_of_service(effect.node, present=effect.present)
            elif isinstance(effect, SetCondition):
                self._kube.set_left_off(effect.node, effect.message)
            elif isinstance(effect, DeletePod):
                if not effect.ask_budget:
                    self._kube.delete_pod(effect.pod)
                elif not self._kube.evict(effect.pod):
                    self._refusals.record_budget(key)
                    _log.info("failover: a disruption budget keeps a pod", node=node, pod=effect.pod.metadata.name)
                    return
            elif isinstance(effect, DeleteAttachment):
                self._kube.delete_attachment(effect.attachment)
            self._refusals.forget(key)
        except KubernetesError as exc:
            self._refusals.record_refusal(key, exc.status, str(exc))
            step = type(effect).__name__
            _log.warning("failover: a step failed; it is repeated", node=node, step=step, error=str(exc))

    def _record_event(self, node: str, code: str, text: str) -> None:
        """Add an Event on the Node, also if that was deleted; a failure is only logged: the record has it, too."""
        reason = "Failover" + "".join(word.capitalize() for word in code.split("-"))
        try:
            self._kube.record_event(node, reason, text, warning=code in _WARNINGS)
        except KubernetesError as exc:
            _log.warning("cannot record an Event", node=node, error=str(exc))


def _subject(effect: Effect) -> str:
    """Return the object that the API server may refuse to change."""
    if isinstance(effect, DeletePod):
        return effect.pod.uid
    if isinstance(effect, DeleteAttachment):
        return effect.attachment.metadata.uid
    return f"{type(effect).__name__} {effect.node.name}" if isinstance(effect, (SetTaint, SetCondition)) else ""


def _content(record: Remediation | None) -> Remediation | None:
    """Return the record without the values that change in each pass."""
    return None if record is None else msgspec.structs.replace(record, updated_at=0.0)
