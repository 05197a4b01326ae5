"""What a task works on: copies, so that nothing is changed before the transaction at its end.

A task changes ``node`` and says what shall happen to ports and data; ``worker.loop`` commits all
of it together with the new state and the request's end, or none of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec
import structlog

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.data import Part
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import Fence, Query, Store, Transaction
from ferroscope.core import bmc_access
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Claim, Document, Entry, Inspection, Node, Port, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS, Event
from ferroscope.hardware import search_index
from ferroscope.hooks.base import PortChanges
from ferroscope.remote import command_fence
from ferroscope.storage.reader import Archive, previous
from ferroscope.transition import step
from ferroscope.worker.bmc_calls import Unwatched, Watch, watched

T = TypeVar("T")

# Seconds between two looks whether an inspection is still wanted.
_LOOK_EVERY: Final = 1.0


_log = structlog.get_logger(__name__)


class StoppedError(Exception):
    """The process shall stop; the task was interrupted and its request goes back on the queue."""


class SupersededError(Exception):
    """The end of the inspection is decided: whatever its start would still do to the machine is not wanted."""

    def __init__(self, event: Event) -> None:
        self.event = event
        super().__init__(f"{event} was asked for meanwhile; the machine is left to it")


class TaskContext:
    """One attempt of one request.

    ``node`` and ``ports`` are this task's own copies. ``rerun`` says that an earlier attempt may
    have had effects outside. ``parts`` is data to be stored with the inspection, ``index_rows`` what
    searches shall find, None where that has not changed. ``watch`` is told of the calls to the BMC, and
    ``doing`` says what holds the attempt up, where it is somebody else's code. ``confirmed_at`` and ``sure`` as of
    ``Locked`` and ``Worker``.
    """

    def __init__(
        self,
        *,
        claim: Claim,
        node: Node,
        inspection: Inspection | None,
        rerun: bool,
        store: Store,
        bmc: Bmc | None,
        settings: Settings,
        clock: Clock,
        stop: StopFlag,
        process: str,
        archive: Archive | None = None,
        watch: Watch | None = None,
        confirmed_at: float | None = None,
        sure: Callable[[float], float] = lambda _confirmed_at: math.inf,
    ) -> None:
        self.claim = claim
        self.before = node
        self.node = msgspec.structs.replace(node, **_documents(node))
        self.inspection = inspection
        self.port_changes = PortChanges()
        self.parts: dict[Part, bytes] = {}
        self.index_rows: list[search_index.IndexRow] | None = None
        self.bmc_addresses: frozenset[str] | None = None
        self.notes: list[tuple[float, Entry]] = []  # when, by the monotonic clock, and what
        self.began_at: float | None = None  # when, by that clock, the transaction began that writes them
        self.rerun = rerun
        self.store = store
        self.archive = archive or Archive(store, {})
        self.watch: Watch = watch or Unwatched()
        self._bmc = bmc if watch is None else watched(bmc, watch)
        self.doing = ""
        self.settings = settings
        self.clock = clock
        self.stop = stop
        self.process = process
        self.progress: Document = dict(claim.request.progress)
        self._looked_at = clock.monotonic()
        # Before the claim was written, not now: in between this process may have been frozen, and been replaced.
        self._confirmed_at = self._looked_at if confirmed_at is None else confirmed_at
        self._sure = sure
        self._given_back = False

    @property
    def request(self) -> Request:
        return self.claim.request

    @cached_property
    def ports(self) -> list[Port]:
        """The node's ports; nobody else changes them while the node is locked, except an operator."""
        query = Query(filters={"node": self.node.uuid})
        return list(self.store.read(lambda tx: tx.ports.list(query)))

    def driver(self) -> Bmc:
        """Return the node's driver; ``BmcError`` where none of that name is enabled."""
        if self._bmc is None:
            raise BmcError(
                f"the driver {self.node.driver} is not enabled here", transient=False, reason=Reason.DRIVER_UNKNOWN
            )
        if not self.settings.drivers.bmc_networks and bmc_access.unconfirmed(self.node):
            found = bmc_access.secrets(self.node.driver_info)
            if found:
                message = (
                    f"only the machine itself has said where its BMC is, so {', '.join(found)} is not sent there: "
                    "approve the node, give the address again, or set [drivers] bmc_networks"
                )
                raise BmcError(message, transient=False, reason=Reason.BMC_NOT_ALLOWED)
        return self._bmc

    @property
    def known_driver(self) -> Bmc | None:
        """The node's driver, None where none of that name is enabled here."""
        return self._bmc

    def add_ports(self, ports: list[Port]) -> None:
        """Add ports to the node here and now, fenced: what happens next relies on them. ``ConflictError``."""

        def work(tx: Transaction) -> None:
            tx.requests.hold(self.claim)
            tx.ports.add(ports)

        self.store.write(work)
        self.ports.extend(ports)

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        """Note a step; it reaches the journal when the attempt ends, or with the next intent."""
        entry = step(self.node, name, message, process=self.process, severity=severity, reason=reason, detail=detail)
        if self.request.event in COMMANDS:
            entry = msgspec.structs.replace(entry, inspection=None)
        self.notes.append((self.clock.monotonic(), entry))

    def intend(self, effect: str, fence: Fence | None = None, *, seen: Document | None = None) -> None:
        """Record, durably and fenced, that ``effect`` on the world is about to happen, and when.

        ``fence`` is that of an office under which it happens, beside the claim's own. ``seen`` is what
        a later attempt has to know of the world before.
        """

        def work(tx: Transaction) -> None:
            tx.requests.hold(self.claim)
            if fence is not None:
                fence(tx)
            self.save_notes(tx)
            self.progress[effect] = {**(seen or {}), "at": tx.now}
            tx.requests.hold(self.claim, progress=self.progress)

        asked_at = self.began_at = self.clock.monotonic()
        self.store.write(work)
        self._confirmed_at = asked_at
        self.notes, self.began_at = [], None
        self.bmc_addresses = None

    def command(self, call: Callable[[], T], *, confirm: Callable[[], None] = lambda: None) -> T:
        """Let ``call`` command the machine; it is ``confirm``ed first, here and by the caller's ``confirm``.

        The driver sends only while the claim is sure to be ours: it looks once more just before the bytes
        (``remote.command_fence``). Where it is not sure, nothing was sent, so who still has the claim begins again.
        """
        while True:
            self.confirm()
            confirm()
            try:
                with command_fence.fenced(self._left):
                    return call()
            except command_fence.TooLateError:
                _log.warning("a command was not sent: the claim may be somebody else's", node=self.node.uuid)
                self.pause(self.settings.worker.heartbeat_interval)

    def give_back(self) -> None:
        """Command nothing from now on: the claim is being given up, whatever this attempt is still at."""
        self._given_back = True

    def _left(self) -> float:
        """Return for how many seconds the claim is sure to be ours, 0 where it may not be."""
        return 0.0 if self._given_back else self._sure(self._confirmed_at)

    def confirm(self) -> None:
        """Call before an effect outside: ``ClaimLostError`` where it is somebody else's by now.

        Asks the store only where some time has passed since the claim was last written: this process
        may have been frozen meanwhile, for so long that another one has taken its place.
        ``SupersededError`` as of ``look``.
        """
        now = self.clock.monotonic()
        if now - self._confirmed_at > self.settings.worker.heartbeat_interval or self._left() <= 0:
            self.store.write(lambda tx: tx.requests.hold(self.claim), durable=False)
            self._confirmed_at = now
        self.look()

    def look(self) -> None:
        """Raise ``SupersededError`` where a start goes on although its inspection is to end; asks now and then."""
        now = self.clock.monotonic()
        if self.request.event is not Event.INSPECT or now - self._looked_at < _LOOK_EVERY:
            return
        pending = self.store.read(lambda tx: tx.requests.pending(self.node.uuid))
        self._looked_at = now
        for other in pending:
            if self._ends(other):
                raise SupersededError(other.event)

    def _ends(self, other: Request) -> bool:
        """Whether another request of the node leaves nothing for this one to do.

        Not a time-out from before this attempt: the clock has begun anew with it.
        """
        if other.event is Event.TIMEOUT and self.inspection is not None:
            return other.created_at >= (self.inspection.clock_since or 0.0)
        return other.event is Event.DELETE or (other.event in ENDING and other.inspection == self.request.inspection)

    def save_notes(self, tx: Transaction) -> None:
        """Write what was noted so far: journal entries and the node's BMC addresses."""
        # The transaction's time is that of its beginning. What is noted since then happens at that time;
        # whatever the transaction has taken, nothing moves before what was written earlier.
        if self.bmc_addresses is not None:
            tx.addresses.set_bmc(self.node.uuid, self.bmc_addresses)
        began = self.began_at if self.began_at is not None else self.clock.monotonic()
        tx.journal.append(
            msgspec.structs.replace(entry, at=tx.now - max(0.0, began - noted)) for noted, entry in self.notes
        )

    def intended(self, effect: str) -> bool:
        """Whether an earlier attempt recorded the intent of ``effect``."""
        return effect in self.progress

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        """Return which of these MACs are ports of other nodes: MAC -> that node's UUID."""
        query = Query(filters={"address": tuple(macs)})
        if not query.filters["address"]:
            return {}
        found = self.store.read(lambda tx: tx.ports.list(query))
        return {port.address: port.node for port in found if port.node != self.node.uuid}

    def named(self, name: str) -> str | None:
        """Return the UUID of the other node that has this name; None where none has."""
        found = self.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
        return next((node.uuid for node in found if node.uuid != self.node.uuid), None)

    def previous_inventory(self) -> Document | None:
        """Return the inventory of the node's newest inspection that finished before this one; None: there is none."""
        found = self.store.read(lambda tx: previous(tx, self.node.uuid, self.inspection, ("inventory",)))
        try:
            stored = self.archive.fetch(found).get("inventory") if found is not None else None
        except ObjectStoreError as exc:
            # It helps to know, but the inspection must not fail because something else is away.
            message = f"the previous inventory cannot be read, processing goes on without it: {exc}"
            self.note("previous inventory", message, severity=Severity.WARNING)
            return None
        return None if stored is None else msgspec.json.decode(stored, type=dict[str, Any])

    def begins(self, hook: str, what: str = "") -> None:
        """Note what the attempt is at: the hook, or something else."""
        self.doing = what or f"the hook {hook}"

    def learn(self, inventory: Document, plugin_data: Document) -> None:
        """Derive what searches shall find from the results; nothing is stored anew where it is as before."""
        found = search_index.learn(inventory, plugin_data)
        if found.digest != self.node.search_digest:
            self.node.search_digest, self.node.hardware, self.index_rows = found.digest, found.summary, found.rows

    def pause(self, seconds: float) -> None:
        """Wait; raise ``StoppedError`` when the process shall stop, ``SupersededError`` as of ``look``."""
        until = self.clock.monotonic() + seconds
        left = seconds
        while True:
            if self.stop.wait(min(left, _LOOK_EVERY)):
                raise StoppedError
            self.look()
            left = until - self.clock.monotonic()
            if left <= 0:
                return


def _documents(node: Node) -> dict[str, Any]:
    """Return deep copies of the node's documents, so that hooks may change them in place."""
    return {
        name: msgspec.json.decode(msgspec.json.encode(value))
        for name in Node.__struct_fields__
        if isinstance(value := getattr(node, name), dict)
    }
