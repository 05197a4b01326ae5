"""One attempt at a claimed request: copies to work on, and what happens outside the database.

A task changes the copies. The loop commits them together with the new state and the end of the request, or nothing. The
``AttemptJournal`` holds what the timeline will say, until a transaction writes it.

A claim is a fence: every write of an attempt checks it, so an attempt whose claim was lost changes nothing in the
database. A BMC checks no fence. Two things stand in for it:

* An *intent* is recorded, durably and under the claim, before an effect that must not be repeated. The next attempt
  finds the intent and asks the machine what became of it.
* A *command* is sent only while the claim is certainly still ours. ``remote.command_fence`` checks that immediately
  before the bytes leave, because a process may be frozen between any two lines of code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from inspect import isfunction
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import msgspec
import structlog

from ferroscope.contracts import bmc as abilities
from ferroscope.contracts.bmc import AttachesMedia, Bmc, Power, RamdiskBoot
from ferroscope.contracts.errors import BmcError, NotFoundError
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import Clock, Later, Packed, Part, Query
from ferroscope.core import bmc_access
from ferroscope.core.delivery import Decision, Run
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Claim, Document, Inspection, Node, Port, Request, Severity
from ferroscope.core.notification import ChangeView
from ferroscope.core.secrets import holds_concealed, is_concealed, is_plain, replace_values
from ferroscope.core.states import Event
from ferroscope.db import Fence, Transaction
from ferroscope.hardware.search_index import IndexRow
from ferroscope.hooks.base import PortChanges
from ferroscope.remote import command_fence, processor_delay
from ferroscope.storage.reader import previous
from ferroscope.telemetry.tracing import Trail
from ferroscope.worker.results import AttemptJournal
from ferroscope.worker.services import BmcObserver, Services, StoppedError, StoredData, SupersededError
from ferroscope_client.core import json_safety
from ferroscope_client.core.node import DOCUMENTS
from ferroscope_client.core.reasons import UNAVAILABLE, Reason

T = TypeVar("T")

# Seconds between two checks whether an inspection is still wanted.
_CHECK_INTERVAL_SECONDS: Final = 1.0
# A process without the key of its secrets leaves a new request to others for this long: key files spread slowly.
_KEY_PATIENCE_SECONDS: Final = 300.0

_log = structlog.get_logger(__name__)


class Locked(msgspec.Struct, frozen=True):
    """A node under a claim, as it was when it was locked, and its newest inspection.

    ``confirmed_at`` is a time of the monotonic clock *before* the claim was last written or committed: the process may
    have been frozen, and replaced, since then. ``decision`` is what to do, if it was saved in the same transaction.
    ``read`` is what the task begins with, if it was read in that transaction: see ``ReadsAhead``.
    """

    claim: Claim
    node: Node
    inspection: Inspection | None
    confirmed_at: float
    decision: Decision | None = None
    read: Later[StoredData] | None = None


class Attempt:
    """``before`` is the node as it was locked; ``node`` and ``ports`` are copies to work on.

    ``rerun``: an earlier attempt may have had effects outside. ``progress`` maps each intent to what it recorded. To be
    stored with the results: ``port_changes``, ``parts`` (data of the inspection), ``index_rows`` (the search index;
    None: unchanged), ``hardware_changes`` (what the event contains) and ``deviations`` from the expected hardware
    (None: not checked). A failed inspection stores its deviations, too. ``sets_next_boot``: the attempt has set the
    boot device of the next boot. ``doing`` names third-party code that is running, such as a hook.
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
        self.bmc_observer: BmcObserver | None = None
        self.services, self.settings = services, services.settings
        self.store, self.clock = services.store, services.clock
        self.journal = AttemptJournal(services.clock, services.process, locked.node, self.request)
        self.note = self.journal.note
        self.warn = partial(self.journal.note, severity=Severity.WARNING)
        self.trail: Trail | None = None
        tracer = services.meter.tracer
        if tracer is not None and self.inspection and self.request.inspection == self.inspection.uuid:
            self.trail = Trail(tracer, services.clock, self.inspection, self.request)
        self._bmc = bmc
        self._checked_at = services.clock.monotonic()
        self._confirmed_at = locked.confirmed_at
        self._revoked = False

    def work_on(self, node: Node) -> None:
        self.before = node
        # Deep copies of the documents, so that hooks may change them in place.
        documents = json_safety.decode_own(msgspec.json.encode(_documents_of(node)))
        self.node = msgspec.structs.replace(node, **dict(zip(DOCUMENTS, documents, strict=True)))
        self._ports: list[Port] | None = None

    @cached_property
    def reported_power(self) -> ReportedPower:
        return ReportedPower(self.clock)

    @property
    def ports(self) -> list[Port]:
        """The node's ports; while the node is locked, only an operator may change them.

        Not a ``cached_property``: before Python 3.12 that holds one lock for the attempts of all threads meanwhile.
        """
        if self._ports is None:
            query = Query(filters={"node": self.node.uuid})
            self._ports = list(self.store.read(lambda tx: tx.ports.list(query), snapshot=False))
        return self._ports

    @ports.setter
    def ports(self, ports: list[Port]) -> None:
        self._ports = ports

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        """Return the ports of other nodes that have one of these MACs: MAC -> UUID of the node."""
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
        location = self.store.read(lambda tx: previous(tx, self.node.uuid, self.inspection, parts))
        try:
            stored = self.services.archive.fetch(location) if location is not None else {}
            if len(stored) < len(parts):
                return {}
            return {part: json_safety.decode_clean(stored[part]) for part in parts}
        except (ObjectStoreError, json_safety.JsonTooLargeError) as exc:
            self.warn("previous inventory", f"cannot read the previous inventory, {without}: {exc}")
            return {}

    @cached_property
    def known_driver(self) -> Bmc | None:
        if self._bmc is None:
            return None
        return cast("Bmc", ObservedDriver(self._bmc, self.bmc_observer, self.with_plain_secrets, self.trail))

    def with_plain_secrets(self, node: Node) -> Node:
        """Return the node with all secrets of ``driver_info`` in plain text; ``BmcError`` if one cannot be had.

        The error waits if another process may have the missing key. Failing takes milliseconds, so this process would
        take the requests of the others, too, and fail them all.
        """
        try:
            return self._reveal(node)
        except BmcError as exc:
            if exc.reason is not Reason.ENCRYPTION_KEY_MISSING:
                raise
            age = self.store.read(lambda tx: tx.now) - self.request.created_at
            if age > _KEY_PATIENCE_SECONDS:
                raise
            raise BmcError(str(exc), transient=True, reason=exc.reason, waits=True) from None

    def _reveal(self, node: Node) -> Node:
        """Decrypt with the present keys.

        An attempt may take minutes. Meanwhile ``db rekey`` may have encrypted the stored secrets with another key, and
        the old one may be gone: then the stored secrets are the node's.
        """
        try:
            return self.services.secrets.reveal(node)
        except BmcError as exc:
            if exc.reason is not Reason.ENCRYPTION_KEY_MISSING:
                raise
            try:
                stored = self.store.read(lambda tx: tx.nodes.get(node.uuid)).driver_info
            except NotFoundError:
                raise exc from None
            if stored == node.driver_info:
                raise
            if _without_secrets(stored) != _without_secrets(node.driver_info):
                # The new secrets may be those of another BMC; the next attempt begins with all that is stored.
                message = f"driver_info was changed during the attempt: {exc}"
                raise BmcError(message, transient=True, reason=exc.reason) from None
        return self.services.secrets.reveal(msgspec.structs.replace(node, driver_info=stored))

    def driver(self) -> Bmc:
        """Return the node's driver; ``BmcError`` if it is not enabled or must not be sent the stored secrets."""
        if self.known_driver is None:
            message = f"driver {self.node.driver!r} is not enabled: add it to [drivers] enabled"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_UNKNOWN)
        if why := bmc_access.withheld_reason(self.node, networks=self.settings.drivers.bmc_networks):
            raise BmcError(why, transient=False, reason=Reason.BMC_UNCONFIRMED)
        return self.known_driver

    def find_node_by_name(self, name: str) -> str | None:
        """Return the UUID of the other node with this name; None if there is none."""
        nodes = self.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
        return next((node.uuid for node in nodes if node.uuid != self.node.uuid), None)

    def previous_inventory(self) -> Document | None:
        """Return the inventory of the newest inspection that finished before this one; None if there is none."""
        return self.previous_data(("inventory",), "continuing without it").get("inventory")

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

        The same transaction writes the journal so far. ``fence`` belongs to the lease under which the effect happens,
        beside the claim. ``seen`` is what a later attempt has to know about the state before the effect.
        """
        progress: Document = {}

        def work(tx: Transaction) -> None:
            tx.requests.hold(self.claim)
            if fence is not None:
                fence(tx)
            self.journal.write(tx)
            # At the end: the database's time is known by then. Asking for it first would be a round trip.
            progress.update(self.progress, **{effect: {**(seen or {}), "at": tx.now}})
            tx.requests.hold(self.claim, progress=progress)

        self.journal.begin_writing()
        asked_at = self.clock.monotonic()
        self.store.write(work)
        self.progress, self._confirmed_at = progress, asked_at
        self.journal.clear()

    def command(
        self, call: Callable[[], T], *, confirm: Callable[[], None] = lambda: None, intent: str | None = None
    ) -> T:
        """Command the machine: run ``call`` after a check of the claim and of the caller's ``confirm``.

        A command that certainly had no effect withdraws its ``intent``: the next attempt must not take a refused
        command for a sent one. If the command fence finds, just before the bytes leave, that the claim may be lost,
        nothing is sent: the claim is confirmed anew, and the call starts over if it is still ours.
        """
        while True:
            self.confirm()
            confirm()
            try:
                with command_fence.fence_commands(self._valid_for):
                    return call()
            except BmcError as exc:
                if exc.not_done and intent is not None:
                    self.progress.pop(intent, None)
                    self.store.write(lambda tx: tx.requests.hold(self.claim, progress=self.progress))
                raise
            except command_fence.TooLateError:
                _log.warning("command not sent: the claim may have been lost", node=self.request.node)
                self.pause(self.services.heartbeat_seconds)

    def confirm(self) -> None:
        """Call this before an effect outside. ``ClaimLostError``; ``SupersededError`` as in ``check_superseded``.

        It asks the store only if some time has passed since the claim was last written.
        """
        now = self.clock.monotonic()
        if now - self._confirmed_at > self.services.heartbeat_seconds or self._valid_for() <= 0:
            self.store.write(lambda tx: tx.requests.hold(self.claim), durable=False)
            self._confirmed_at = now
        self.check_superseded()

    def check_superseded(self) -> None:
        """Raise ``SupersededError`` in a start whose inspection is about to be ended; it looks once a second."""
        now = self.clock.monotonic()
        if self.request.event is not Event.INSPECT or now - self._checked_at < _CHECK_INTERVAL_SECONDS:
            return
        self._checked_at = now
        for ending in self.services.endings.of(self.request.node):
            if self._is_ended_by(ending):
                raise SupersededError(ending.event)

    def pause(self, seconds: float) -> None:
        """Wait; ``StoppedError`` if the process is stopping, ``SupersededError`` as in ``check_superseded``."""
        until = self.clock.monotonic() + seconds
        left = seconds
        while True:
            if self.services.stop.wait(min(left, _CHECK_INTERVAL_SECONDS)):
                raise StoppedError
            self.check_superseded()
            if (left := until - self.clock.monotonic()) <= 0:
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


_documents_of: Final = attrgetter(*DOCUMENTS)


def _without_secrets(info: Document) -> Document:
    return replace_values(info, lambda key, value: is_concealed(key, value) or is_plain(key, value), lambda *_: "")


# The BMC of an attempt: tasks call its driver as usual, and the driver does not know that it is observed.

_ABILITIES: Final = (
    Bmc, RamdiskBoot, AttachesMedia, abilities.ShowsRestarts, abilities.ClearsBootDevice, abilities.OutOfBand,
    abilities.ListsNics, abilities.ReportsHealth, abilities.ForcesOff, abilities.SoftPower, abilities.SoftReboot,
    abilities.ChangesPassword, abilities.TellsMachines,
)  # fmt: skip
# Every method that talks to a BMC. A driver has the methods of ``Bmc``, and any of the optional ones.
_CALLS: Final = tuple(
    name
    for ability in _ABILITIES
    for name, member in vars(ability).items()
    if isfunction(member) and not name.startswith("_") and name != "validate"
)

# The calls that prove one password after the other.
_LOGINS: Final = frozenset(name for name, member in vars(abilities.ChangesPassword).items() if isfunction(member))


class ObservedDriver:
    """A driver whose calls are observed and get the node with its secrets in plain text.

    Has exactly the methods that ``driver`` has: callers find out by them what it can do. It does not send a rejected
    password again, whatever else the attempt would call: BMCs lock accounts.
    """

    def __init__(
        self,
        driver: Bmc,
        observer: BmcObserver | None = None,
        revealed: Callable[[Node], Node] = lambda node: node,
        trail: Trail | None = None,
    ) -> None:
        self.properties = driver.properties if hasattr(driver, "properties") else {}
        self.validate = lambda node: driver.validate(revealed(node))
        self._observer, self._revealed, self._trail = observer, revealed, trail
        self._rejected: BmcError | None = None
        for name in _CALLS:
            call = getattr(driver, name, None)
            if call is not None:
                setattr(self, name, partial(self._call, call))

    def _call(self, call: Callable[..., Any], node: Node, *arguments: Any, **options: Any) -> Any:
        name = call.__name__
        if self._rejected is not None and name not in _LOGINS:
            raise self._rejected
        if holds_concealed(node.driver_info):  # not a part of the call: the BMC is not to blame if it fails
            node = self._revealed(node)
        if self._observer is not None:
            self._observer.call_started()
        answered, error = True, ""
        began = 0.0 if self._trail is None else self._trail.time()
        try:
            with processor_delay.measure_delay() as delay:
                value = call(node, *arguments, **options)
            # A driver of others may say anything: what is not a power state is unknown.
            return Power.of(value) if name == "get_power" else value
        except BmcError as exc:
            if exc.reason in UNAVAILABLE and (seconds := delay.excuses()):
                # This process itself was late: the BMC is not to blame.
                message = f"{exc}; this worker waited {seconds:.1f} s for a processor meanwhile, so that is not counted"
                late = BmcError(message, transient=True, reason=Reason.BMC_BUSY, waits=True)
                late.not_done, error = exc.not_done, str(late.reason)
                raise late from None
            answered, error = exc.reason not in UNAVAILABLE, str(exc.reason)
            if exc.reason is Reason.BMC_CREDENTIALS and name not in _LOGINS:
                self._rejected = exc
            raise
        finally:
            if self._observer is not None:
                self._observer.call_ended(answered=answered)
            if self._trail is not None:
                self._trail.record_command(name, node.driver, began, error)


# Seconds for which a reported power state counts. Short: others may use the machine meanwhile.
_RECENT_SECONDS: Final = 2.0


class ReportedPower:
    """The power state that an attached Ironic, or the BMC, has just reported; for a moment no one asks again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[Power, float] | None = None

    def saw(self, power: Power, *, at: float | None = None) -> None:
        """Remember the answer to a question of that time, or of just now."""
        self._seen = (power, self._clock.monotonic() if at is None else at)

    def forget(self) -> None:
        """Forget it: the power is about to change."""
        self._seen = None

    def recent_power(self) -> Power | None:
        """Return what was reported a moment ago; None if it has to be asked."""
        if self._seen is None or self._clock.monotonic() - self._seen[1] > _RECENT_SECONDS:
            return None
        return self._seen[0]
