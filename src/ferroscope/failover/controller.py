"""The controller: reads, has ``decision`` decide, stores the record, then carries out the effects. All I/O is here.

It is level-triggered: each pass reads everything that it decides on. A watch only ends the pause between two passes.
A record is stored under the fence of the lease before the effects that it announces, so a leader that has lost its
lease begins nothing; and what it has begun carries the resource version that it read, so a late call changes nothing.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec
import structlog

from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.store import Query, Store, Transaction
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.delivery import IllegalEventError, Refused
from ferroscope.core.model import Entry, Node, Severity
from ferroscope.core.remediation import Remediation
from ferroscope.core.states import ACTIVE
from ferroscope.failover.client import Kubernetes, KubernetesError
from ferroscope.failover.cluster import Attachment, KubeNode, Pod
from ferroscope.failover.decision import (
    Decision,
    DeleteAttachment,
    DeletePod,
    Effect,
    Inspect,
    PowerOff,
    PowerOn,
    Rules,
    Seen,
    SetTaint,
    View,
    decide,
    is_storm,
    is_suspect,
)
from ferroscope.failover.machines import Machine, Match, described, find
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import stored
from ferroscope.remote.command_fence import TooLateError

_log = structlog.get_logger(__name__)

LEASE: Final = "failover/"
# The first server that acts on the out-of-service taint without a feature gate.
TAINT_SINCE: Final = (1, 28)
_BUSY_PERIOD: Final = 1.0  # seconds between two passes while a remediation is in progress
_PAGE: Final = 500
_BMCS: Final = 16  # that are waited for at the same time
_WARNINGS: Final = frozenset({"failed", "power-off", "proven", "forcing", "tainted", "without-proof", "was-alive"})


class Leading(Protocol):
    """See ``contracts.store.StepLeadership``; ``left`` is the time in seconds for which the lease can be trusted."""

    def fence(self, tx: Transaction) -> None: ...

    def keep_alive(self) -> None: ...

    def left(self) -> float: ...

    @property
    def epoch(self) -> int: ...


class MachinePower(Protocol):
    """The power of machines, by their UUID. ``BmcError``, ``TooLateError``."""

    def is_off(self, machine: str) -> bool: ...

    def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        """Request it, as long as ``left`` returns more than 0 seconds."""


class Looked(msgspec.Struct, frozen=True):
    """One node in one pass: what was seen, the stored record, and the decision."""

    seen: Seen
    record: Remediation | None
    decision: Decision


class _Asked(msgspec.Struct, frozen=True):
    """One node while its BMC is being asked; ``at`` is from just before the question."""

    name: str
    match: Match
    answer: Future[bool] | None
    at: float
    pods: Sequence[Pod]
    attachments: Sequence[Attachment]


class _Commanded(msgspec.Struct, frozen=True):
    """A power command that is under way."""

    node: str
    effect: Effect
    running: Future[None]


class Failover:
    """A periodic task (see ``periodic.singleton``); it runs when ``wake`` is set, and every ``resync`` seconds."""

    def __init__(
        self,
        kube: Kubernetes,
        power: MachinePower,
        store: Store,
        rules: Rules,
        *,
        cluster: str,
        clock: Clock,
        api_servers: Sequence[str] = (),
        resync: float = 10.0,
        dry_run: bool = False,
        process: str = "",
        meter: Meter = SILENT,
        wake: StopFlag | None = None,
        inspect: Callable[[Transaction, str], None] | None = None,
    ) -> None:
        self.name = LEASE + cluster
        self.period = _BUSY_PERIOD
        self._kube = kube
        self._power = power
        self._store = store
        self._rules = rules
        self._cluster = cluster
        self._clock = clock
        self._api_servers = tuple(api_servers)
        self._resync = resync
        self._dry_run = dry_run
        self._process = process
        self._meter = meter
        self._inspect = inspect
        self._wake = wake or threading.Event()
        self._next_at = -math.inf
        self._status = "has not looked at the cluster yet"
        # What identifies each kubelet's last renewal, and when this process first saw it.
        self._renewals: dict[str, tuple[str, float]] = {}
        self._pool = ThreadPoolExecutor(max_workers=_BMCS, thread_name_prefix="bmc")

    def close(self) -> None:
        """Start nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def step(self, leading: Leading) -> str:
        """Pass once, if it is time to; return a status."""
        now = self._clock.monotonic()
        if now < self._next_at and not self._wake.is_set():
            return self._status
        self._wake.clear()  # type: ignore[attr-defined]
        try:
            looked = self.look(leading.keep_alive, epoch=leading.epoch)
            commanded = [command for one in looked for command in self._carry_out(leading, one)]
            for command in commanded:
                self._finish(leading, command)
        except KubernetesError as exc:
            self._next_at = now + max(_BUSY_PERIOD, exc.retry_after)
            self._status = f"cannot read the cluster: {exc}"
            _log.warning("cannot read the cluster", cluster=self._cluster, error=str(exc), status=exc.status)
            return self._status
        busy = any(one.decision.record is not None and not one.decision.record.ended for one in looked)
        self._next_at = now + (_BUSY_PERIOD if busy else self._resync)
        said = [f"{one.seen.name}: {one.decision.message or one.decision.reason}" for one in looked]
        self._status = "; ".join(said) or "all nodes are ready"
        return self._status

    # Reading.

    def look(self, keep_alive: Callable[[], object] = lambda: None, *, epoch: int = 0) -> list[Looked]:
        """Return every node that has failed, or has a record, with what is to be done; change nothing."""
        nodes, _ = self._kube.nodes()
        keep_alive()
        silent = self._silence(self._kube.renewals())
        keep_alive()
        active = {one.node: one for one in self._store.read(lambda tx: tx.remediations.active(self._cluster))}
        failed = {one.name for one in nodes if is_suspect(one, silent.get(one.name, 0.0), self._rules)}
        names = sorted(failed | set(active))
        if not names:
            return []
        problem = self._problem()
        keep_alive()
        taints = self._kube.version() >= TAINT_SINCE
        unknown = bool(failed - set(active)) or any(not one.machine for one in active.values())
        machines = self._machines(list(active.values()), every=unknown)
        # All BMCs are asked at once: a slow one must not delay what is known about the others.
        asked = [one for name in names if (one := self._ask(name, active.get(name), machines, keep_alive)) is not None]
        there = {one.name: self._see(one, keep_alive) for one in asked}
        seen = [there.get(name) or Seen(name=name, node=None) for name in names]
        current = {one.name: one for one in nodes} | {one.name: one.node for one in seen if one.node is not None}
        view = View(
            cluster=self._cluster,
            nodes=list(current.values()),
            now=self._store.read(lambda tx: tx.now),
            clock=self._clock.monotonic(),
            epoch=epoch,
            problem=problem,
            taints=taints,
        )
        if storm := is_storm(view, self._rules):
            _log.warning("too many nodes are not ready", cluster=self._cluster, why=storm)
        return [
            Looked(one, active.get(one.name), decide(view, one, active.get(one.name), self._rules, _new_uuid))
            for one in seen
        ]

    def _silence(self, renewals: Mapping[str, str]) -> dict[str, float]:
        """Return for how many seconds we have seen no renewal of each kubelet, by our own clock."""
        now = self._clock.monotonic()
        known = self._renewals
        self._renewals = {
            name: known[name] if name in known and known[name][0] == renewal else (renewal, now)
            for name, renewal in renewals.items()
        }
        return {name: now - since for name, (_, since) in self._renewals.items()}

    def _problem(self) -> str:
        """Return why our own view cannot be trusted, "" if it can."""
        if not self._api_servers:
            return ""
        ready = sum(1 for one in self._api_servers if self._kube.is_ready(one))
        needed = min(2, len(self._api_servers))
        return "" if ready >= needed else f"{ready} of {len(self._api_servers)} API servers answer, {needed} must"

    def _ask(
        self,
        name: str,
        record: Remediation | None,
        machines: Mapping[str, Machine],
        keep_alive: Callable[[], object],
    ) -> _Asked | None:
        """Read what is on the node, and ask its BMC without waiting; None if the cluster has no such node."""
        # Pods and volumes are read first: if the kubelet comes back after that, their versions change, and a deletion
        # of what was read here is refused.
        pods, attachments = self._kube.pods_on(name), self._kube.attachments_of(name)
        node = self._kube.node(name)
        if node is None:
            return None
        keep_alive()
        match, answer, at = self._match(node, record, machines), None, self._clock.monotonic()
        if match.machine is not None and self._rules.mode == "proof":
            answer = self._pool.submit(self._power.is_off, match.machine.uuid)
        return _Asked(name, match, answer, at, pods, attachments)

    def _see(self, asked: _Asked, keep_alive: Callable[[], object]) -> Seen:
        """Wait for the BMC's answer; what the kubelet renewed before it must be seen, so that is read afterwards."""
        name = asked.name
        off, error = _answer(asked.answer, keep_alive)
        renewal = self._kube.renewal(name)
        if name not in self._renewals or self._renewals[name][0] != renewal:  # not there: the node has no lease
            self._renewals[name] = (renewal, self._clock.monotonic())
        keep_alive()
        return Seen(
            name=name,
            node=self._kube.node(name),
            renewal=renewal,
            silent=self._clock.monotonic() - self._renewals[name][1],
            match=asked.match,
            power_off=off,
            power_error=error,
            asked_at=asked.at,
            pods=asked.pods,
            attachments=asked.attachments,
        )

    @staticmethod
    def _match(node: KubeNode, record: Remediation | None, machines: Mapping[str, Machine]) -> Match:
        if record is not None and record.machine:
            machine = machines.get(record.machine)
            if machine is None:
                return Match(None, "machine-unknown", "its machine was deleted")
            return Match(machine)
        return find(node, machines.values())

    def _machines(self, records: Sequence[Remediation], *, every: bool) -> dict[str, Machine]:
        """Return the machines of these records, or all if a node has to be found among them."""
        if not every:
            wanted = tuple(one.machine for one in records)
            found = self._store.read(lambda tx: tx.nodes.list(Query(filters={"uuid": wanted})))
            return {one.uuid: machine_of(one) for one in found}
        machines: dict[str, Machine] = {}
        marker: str | None = None
        while True:
            query = Query(limit=_PAGE, marker=marker)
            page = self._store.read(lambda tx, query=query: tx.nodes.list(query))  # type: ignore[misc]
            machines |= {one.uuid: machine_of(one) for one in page}
            if len(page) < _PAGE:
                return machines
            marker = page[-1].uuid

    # Acting.

    def _carry_out(self, leading: Leading, looked: Looked) -> list[_Commanded]:
        """Store the record, then do what it announces; return the power commands that are under way."""
        decision, record = looked.decision, looked.decision.record
        if record is None:
            return []
        before = looked.record.log if looked.record is not None else ()
        new = [one for one in record.log if one not in before]
        for line in new:
            _log.info("failover", cluster=self._cluster, node=record.node, what=line["what"], text=line["text"],
                      dry_run=self._dry_run)  # fmt: skip
        if self._dry_run:
            return []
        if _content(record) != _content(looked.record):
            inspects = any(isinstance(effect, Inspect) for effect in decision.effects)
            self._store.write(lambda tx: self._save(tx, leading, record, new, inspects=inspects))
        for line in new:
            self._meter.failover(line["what"])
            self._event(looked.seen.node, line["what"], line["text"])
        commanded = []
        for effect in decision.effects:
            leading.keep_alive()
            if isinstance(effect, (PowerOff, PowerOn)):
                on = isinstance(effect, PowerOn)
                running = self._pool.submit(self._power.set, record.machine, on=on, left=leading.left)
                commanded.append(_Commanded(record.node, effect, running))
                continue
            try:
                self._apply(effect)
            except KubernetesError as exc:
                _failed(record.node, effect, exc)
        return commanded

    @staticmethod
    def _finish(leading: Leading, command: _Commanded) -> None:
        """Wait until the BMC has answered a power command."""
        _wait(command.running, leading.keep_alive)
        try:
            command.running.result()
        except (BmcError, TooLateError) as exc:
            _failed(command.node, command.effect, exc)

    def _save(
        self,
        tx: Transaction,
        leading: Leading,
        record: Remediation,
        new: Sequence[Mapping[str, Any]],
        *,
        inspects: bool,
    ) -> None:
        leading.fence(tx)
        if inspects and self._inspect is not None:
            try:
                self._inspect(tx, record.machine)
            except (IllegalEventError, Refused) as exc:
                _log.warning("the machine cannot be inspected", node=record.node, error=str(exc))
        tx.remediations.save(record)
        if record.machine:
            tx.journal.append(
                Entry(
                    node=record.machine,
                    step="failover",
                    message=f"Kubernetes node {record.node}: {line['text']}",
                    severity=Severity.WARNING if line["what"] in _WARNINGS else Severity.INFO,
                    process=self._process,
                    detail={"cluster": self._cluster, "kubernetes_node": record.node, "what": line["what"]},
                )
                for line in new
            )

    def _apply(self, effect: Effect) -> None:
        if isinstance(effect, SetTaint):
            self._kube.set_out_of_service(effect.node, present=effect.present)
        elif isinstance(effect, DeletePod):
            if not effect.ask_budget or self._kube.may_evict(effect.pod):
                self._kube.delete_pod(effect.pod)
        elif isinstance(effect, DeleteAttachment):
            self._kube.delete_attachment(effect.attachment)

    def _event(self, node: KubeNode | None, what: str, text: str) -> None:
        """Add an Event on the Node; the record and the log have it, too, so a failure is only logged."""
        if node is None:
            return
        reason = "Failover" + "".join(word.capitalize() for word in what.split("-"))
        try:
            self._kube.record_event(node, reason, text, warning=what in _WARNINGS)
        except KubernetesError as exc:
            _log.warning("cannot record an Event", node=node.name, error=str(exc))


def machine_of(node: Node) -> Machine:
    """Return what the controller has to know about the machine."""
    return Machine(
        uuid=node.uuid,
        name=node.name,
        instance_uuid=node.instance_uuid,
        maintenance=node.maintenance,
        active=node.state in ACTIVE,
        keeps_power=bool(node.attributes.get("disable_power_off")),
        **described(stored(node.internal.get(machine_identity.IDENTITY))),
    )


def _answer(asked: Future[bool] | None, keep_alive: Callable[[], object]) -> tuple[bool | None, str]:
    if asked is None:
        return None, "it was not asked"
    _wait(asked, keep_alive)
    try:
        return asked.result(), ""
    except BmcError as exc:
        return None, str(exc)


def _wait(running: Future[Any], keep_alive: Callable[[], object]) -> None:
    """Wait for a call that is bounded, but may take longer than the lease lasts without a sign of progress."""
    done = threading.Event()
    running.add_done_callback(lambda _: done.set())
    while not done.wait(1.0):
        keep_alive()


def _failed(node: str, effect: Effect, exc: Exception) -> None:
    _log.warning(
        "failover: a step failed; it is repeated", node=node, step=type(effect).__name__,
        error=str(exc) or "the lease was about to expire",
    )  # fmt: skip


def _content(record: Remediation | None) -> Remediation | None:
    """Return the record without what changes in each pass."""
    return None if record is None else msgspec.structs.replace(record, updated_at=0.0, epoch=0)


def _new_uuid() -> str:
    return str(uuid.uuid4())
