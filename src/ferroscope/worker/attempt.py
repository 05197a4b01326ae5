"""One attempt of a claimed request: copies to work on, how long the claim is certainly ours, and what happens outside.

A task changes the copies; ``conclude`` commits them together with the new state and the end of the request, or nothing.
What there is to tell meanwhile is in the ``Journal``, until a transaction writes it.

A claim is a fence: every write of an attempt checks it, so an attempt whose claim was lost can change nothing in the
database. A BMC checks no fence. Two things stand in for it:

* an *intent* is recorded, durably and under the claim, before an effect that must not be repeated. Whoever carries the
  request out next finds the intent and asks the machine what became of it;
* a *command* is sent only while the claim is certainly still ours. The check is made by ``remote.command_fence``
  immediately before the bytes leave, because a process may be frozen between any two lines of code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec
import structlog

from ferroscope.contracts.bmc import Bmc, TellsMachines
from ferroscope.contracts.data import Later, Packed, Part
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, json_safety
from ferroscope.core.delivery import Decision, Run
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Claim, Document, Entry, Inspection, Node, Port, Request, Severity
from ferroscope.core.node import DOCUMENTS
from ferroscope.core.notification import ChangeView
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS, Event
from ferroscope.db.transaction import Fence, Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.search_index import IndexRow
from ferroscope.hooks.base import PortChanges
from ferroscope.remote import command_fence
from ferroscope.storage.reader import previous
from ferroscope.worker.bmc import BmcObserver, ReportedPower, Trail, Unobserved, observe_driver
from ferroscope.worker.services import Services

T = TypeVar("T")

# Seconds between two checks whether an inspection is still wanted.
_CHECK_INTERVAL: Final = 1.0
# Seconds after a request was made for which a process without the key of its secrets leaves it to others: a key file
# reaches the last host later than the first.
_KEY_PATIENCE: Final = 300.0

_log = structlog.get_logger(__name__)


class StoppedError(Exception):
    """The process is stopping; the attempt was interrupted and its request goes back to the queue."""


class SupersededError(Exception):
    """The inspection is about to be ended, so its start must not command the machine any more."""

    def __init__(self, event: Event) -> None:
        self.event = event
        super().__init__(f"superseded by a request to {event} the inspection")


class Locked(msgspec.Struct, frozen=True):
    """A node under a claim, as it was when it was locked, and its newest inspection.

    ``confirmed_at`` is a time of the monotonic clock *before* the claim was last written or committed: the process may
    have been frozen, and replaced, since then. ``decision`` is what to do, if it was saved in the same transaction.
    ``read`` is what the task begins with, if it was read in that transaction: see ``run.ReadsAhead``.
    """

    claim: Claim
    node: Node
    inspection: Inspection | None
    confirmed_at: float
    decision: Decision | None = None
    read: Later[Any] | None = None


class Attempt:
    """``rerun``: an earlier attempt may have had effects outside. ``progress`` maps each intent to what it recorded.

    ``before`` is the node as it was locked; ``node`` and ``ports`` are copies to work on. To be stored with the
    results: ``port_changes``, ``parts`` (data of the inspection), ``index_rows`` (the search index; None: unchanged),
    ``hardware_changes`` (what the event contains) and ``deviations`` from what is expected (None: not checked), which
    are stored although the inspection fails. ``sets_next_boot``: it has set the boot device of the next boot. ``doing``
    names third-party code that is running, such as a hook.
    """

    def __init__(self, locked: Locked, decision: Decision, services: Services, *, bmc: Bmc | None = None) -> None:
        self.work_on(locked.node)
        self.claim = locked.claim
        self.request = locked.claim.request
        self.inspection = locked.inspection
        self.read = locked.read
        self.decision = decision
        self.rerun = isinstance(decision, Run) and decision.rerun
        self.progress: Document = dict(self.request.progress)
        self.port_changes = PortChanges()
        self.parts: dict[Part, Packed] = {}
        self.index_rows: list[IndexRow] | None = None
        self.hardware_changes: list[ChangeView] = []
        self.deviations: list[Document] | None = None
        self.sets_next_boot = False
        self.doing = ""
        self.bmc_observer: BmcObserver = Unobserved()
        self.services, self.settings = services, services.settings
        self.store, self.clock = services.store, services.clock
        self.journal = Journal(services.clock, services.process, locked.node, self.request)
        self.note = self.journal.note
        self.trail: Trail | None = None
        if services.tracer is not None and self.inspection and self.request.inspection == self.inspection.uuid:
            self.trail = Trail(services.tracer, services.clock, self.inspection, self.request)
        self._bmc = bmc
        self._checked_at = services.clock.monotonic()
        self._confirmed_at = locked.confirmed_at
        self._revoked = False

    def work_on(self, node: Node) -> None:
        """Work on copies of this node, and of its ports."""
        self.before = node
        self.node = msgspec.structs.replace(node, **_documents(node))
        vars(self).pop("ports", None)

    @cached_property
    def reported_power(self) -> ReportedPower:
        """The power state as it was last reported to this attempt."""
        return ReportedPower(self.clock)

    @cached_property
    def ports(self) -> list[Port]:
        """The node's ports; while the node is locked, only an operator may change them."""
        query = Query(filters={"node": self.node.uuid})
        return list(self.store.read(lambda tx: tx.ports.list(query), snapshot=False))

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        """Return which of these MACs are ports of other nodes: MAC -> that node's UUID."""
        query = Query(filters={"address": tuple(macs)})
        if not query.filters["address"]:
            return {}
        ports = self.store.read(lambda tx: tx.ports.list(query))
        return {port.address: port.node for port in ports if port.node != self.node.uuid}

    def previous_data(self, parts: tuple[Part, ...], without: str) -> dict[Part, Document]:
        """Return data of the node's newest inspection that finished before this one, all of it or none.

        It is helpful, not required: an object store that is down must not fail the inspection. ``without`` says what
        happens without the data, for the note.
        """
        services = self.services
        location = services.store.read(lambda tx: previous(tx, self.node.uuid, self.inspection, parts))
        try:
            stored = services.archive.fetch(location) if location is not None else {}
            if len(stored) < len(parts):
                return {}
            return {part: json_safety.decode_clean(stored[part]) for part in parts}
        except (ObjectStoreError, json_safety.JsonTooLargeError) as exc:
            message = f"cannot read the previous inventory, {without}: {exc}"
            self.note("previous inventory", message, severity=Severity.WARNING)
            return {}

    @cached_property
    def known_driver(self) -> Bmc | None:
        """The node's driver; None if it is not enabled here."""
        return observe_driver(self._bmc, self.bmc_observer, self.with_plain_secrets, self.trail)

    def with_plain_secrets(self, node: Node) -> Node:
        """As ``Services.with_plain_secrets``; ``BmcError`` that waits if another process may have the missing key.

        It fails in milliseconds, so it would take the requests of the others, too, and fail them all.
        """
        try:
            return self.services.with_plain_secrets(node)
        except BmcError as exc:
            if exc.reason is not Reason.ENCRYPTION_KEY_MISSING:
                raise
            age = self.store.read(lambda tx: tx.now) - self.request.created_at
            if age > _KEY_PATIENCE:
                raise
            raise BmcError(str(exc), transient=True, reason=exc.reason, waits=True) from None

    def driver(self) -> Bmc:
        """Return the node's driver; ``BmcError`` if it is not enabled or must not be sent the stored secrets."""
        if self.known_driver is None:
            raise BmcError(
                f"driver {self.node.driver!r} is not enabled: add it to [drivers] enabled",
                transient=False,
                reason=Reason.DRIVER_UNKNOWN,
            )
        if why := bmc_access.withheld_reason(self.node, networks=self.settings.drivers.bmc_networks):
            raise BmcError(why, transient=False, reason=Reason.BMC_UNCONFIRMED)
        return self.known_driver

    def learn_machine(self) -> None:
        """Keep which machine the BMC is that of, if that is not known for its present address. ``BmcError``."""
        driver = self.driver()
        if isinstance(driver, TellsMachines) and machine_identity.behind_bmc(self.node) is None:
            machine_identity.remember_behind_bmc(self.node, driver.machine(self.node))

    def begins(self, hook: str, text: str = "") -> None:
        """Record what the attempt is running: the named hook, or something else."""
        self.doing = text or f"the hook {hook}"
        if self.trail is not None:
            self.trail.begins(f"hook {hook}" if hook else "rules")

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction of its own, under the claim. ``ClaimLostError``."""

        def write_under_claim(tx: Transaction) -> T:
            tx.requests.hold(self.claim)
            return work(tx)

        return self.store.write(write_under_claim)

    def has_intended(self, effect: str) -> bool:
        """Whether this or an earlier attempt recorded the intent of ``effect``."""
        return effect in self.progress

    def intend(self, effect: str, fence: Fence | None = None, *, seen: Document | None = None) -> None:
        """Record, durably and under the claim, that ``effect`` is about to happen, and when. ``ClaimLostError``.

        The journal so far is written in the same transaction. ``fence`` belongs to a lease under which it happens,
        in addition to the claim. ``seen`` is what a later attempt has to know about the state before the effect.
        """

        def work(tx: Transaction) -> None:
            if fence is not None:
                fence(tx)
            self.journal.write(tx)
            self.progress[effect] = {**(seen or {}), "at": tx.now}
            tx.requests.hold(self.claim, progress=self.progress)

        self.journal.begin_writing()
        asked_at = self.clock.monotonic()
        self.write(work)
        self._confirmed_at = asked_at
        self.journal.clear()

    def command(
        self, call: Callable[[], T], *, confirm: Callable[[], None] = lambda: None, intent: str | None = None
    ) -> T:
        """Command the machine: run ``call`` after the claim and the caller's ``confirm`` have been checked.

        The ``intent`` that was recorded for it is withdrawn if the command certainly had no effect: nobody may take
        for sent what the BMC has refused.
        Where the command fence finds, just before the bytes are sent, that the claim may have been lost, nothing was
        sent: the claim is confirmed anew, and the call starts over if it is still ours.
        """
        while True:
            self.confirm()
            confirm()
            try:
                with command_fence.fence_commands(self._valid_for):
                    return call()
            except BmcError as exc:
                if exc.not_done and intent is not None:
                    self._withdraw(intent)
                raise
            except command_fence.TooLateError:
                _log.warning("command not sent: the claim may have been lost", node=self.request.node)
                self.pause(self.settings.worker.heartbeat_seconds)

    def _withdraw(self, effect: str) -> None:
        self.progress.pop(effect, None)
        self.store.write(lambda tx: tx.requests.hold(self.claim, progress=self.progress))

    def confirm(self) -> None:
        """Call this before an effect outside. ``ClaimLostError``; ``SupersededError`` as in ``check_superseded``.

        The store is asked only if some time has passed since the claim was last written.
        """
        now = self.clock.monotonic()
        if now - self._confirmed_at > self.settings.worker.heartbeat_seconds or self._valid_for() <= 0:
            self.store.write(lambda tx: tx.requests.hold(self.claim), durable=False)
            self._confirmed_at = now
        self.check_superseded()

    def check_superseded(self) -> None:
        """Raise ``SupersededError`` in a start whose inspection is to be ended; looks once a second."""
        now = self.clock.monotonic()
        if self.request.event is not Event.INSPECT or now - self._checked_at < _CHECK_INTERVAL:
            return
        self._checked_at = now
        for ending in self.services.endings.of(self.request.node):
            if self._is_ended_by(ending):
                raise SupersededError(ending.event)

    def pause(self, seconds: float) -> None:
        """Wait; ``StoppedError`` if the process is stopping, ``SupersededError`` as in ``check_superseded``."""
        clock = self.clock
        until = clock.monotonic() + seconds
        left = seconds
        while True:
            if self.services.stop.wait(min(left, _CHECK_INTERVAL)):
                raise StoppedError
            self.check_superseded()
            left = until - clock.monotonic()
            if left <= 0:
                return

    def revoke(self) -> None:
        """Send no more commands: the claim is being given up while this attempt is still running."""
        self._revoked = True

    def _valid_for(self) -> float:
        return 0.0 if self._revoked else self.services.claim_valid_for(self._confirmed_at)

    def _is_ended_by(self, ending: Request) -> bool:
        # A time-out that was requested before this attempt does not count: the clock restarted with the attempt.
        if ending.event is Event.TIMEOUT and self.inspection is not None:
            return ending.created_at >= (self.inspection.clock_since or 0.0)
        return ending.event is Event.DELETE or (ending.event in ENDING and ending.inspection == self.request.inspection)


class Journal:
    """Timeline entries of an attempt, and what becomes known on its way.

    ``entries`` has the time of the monotonic clock at which each was noted. In the database each gets the
    transaction's time minus its age when ``begin_writing`` was called, so that a slow transaction moves nothing.

    Written along with them: ``bmc_addresses`` (None: unchanged), ``secret_delivery`` (how the machine gets its secret;
    None: unchanged) and ``forgotten`` (a key of the node's internal data to delete; None: none).
    """

    def __init__(self, clock: Clock, process: str, node: Node, request: Request) -> None:
        self.entries: list[tuple[float, Entry]] = []
        self.bmc_addresses: frozenset[str] | None = None
        self.secret_delivery: str | None = None
        self.forgotten: str | None = None
        self._clock = clock
        self._process = process
        self._node = node.uuid
        self._inspection = node.inspection
        self._is_command = request.event in COMMANDS  # which belongs to no inspection
        self._began_at: float | None = None

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        """Add a step to the timeline."""
        entry = Entry(
            node=self._node,
            inspection=None if self._is_command else self._inspection,
            step=name,
            message=message,
            process=self._process,
            severity=severity,
            reason=reason,
            detail=detail or {},
        )
        self.entries.append((self._clock.monotonic(), entry))

    def begin_writing(self) -> None:
        """Take now as the time at which the following transaction begins, however often it is repeated."""
        self._began_at = self._clock.monotonic()

    def write(self, tx: Transaction) -> None:
        """Write what has not been written yet."""
        if self.secret_delivery is not None and self._inspection is not None:
            tx.inspections.update(self._inspection, secret_delivery=self.secret_delivery)
        if self.forgotten is not None:
            node = tx.nodes.get(self._node, lock=True)
            internal = {key: value for key, value in node.internal.items() if key != self.forgotten}
            tx.nodes.update(msgspec.structs.replace(node, internal=internal))
        if self.bmc_addresses is not None:
            tx.addresses.set_bmc(self._node, self.bmc_addresses)
        began = self._began_at if self._began_at is not None else self._clock.monotonic()
        tx.journal.append(
            msgspec.structs.replace(entry, at=tx.now - max(0.0, began - noted)) for noted, entry in self.entries
        )

    def clear(self) -> None:
        """Forget what has been written."""
        self.entries, self._began_at = [], None
        self.bmc_addresses = self.secret_delivery = self.forgotten = None


def _documents(node: Node) -> dict[str, Any]:
    """Return deep copies of the node's documents, so that hooks may change them in place."""
    return dict(zip(DOCUMENTS, json_safety.decode_own(msgspec.json.encode(_documents_of(node))), strict=True))


_documents_of: Final = attrgetter(*DOCUMENTS)
