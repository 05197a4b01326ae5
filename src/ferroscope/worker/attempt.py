"""One attempt of a claimed request: how long the claim is certainly ours, and what is about to happen outside.

A claim is a fence: every write of an attempt checks it, so an attempt whose claim was lost can change nothing in the
database. A BMC checks no fence. Two things stand in for it:

* an *intent* is recorded, durably and under the claim, before an effect that must not be repeated. Whoever carries the
  request out next finds the intent and asks the machine what became of it;
* a *command* is sent only while the claim is certainly still ours. The check is made by ``remote.command_fence``
  immediately before the bytes leave, because a process may be frozen between any two lines of code.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope.config.options import Settings
from ferroscope.contracts.attached import Attached
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.images import Images, Unchecked
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.telemetry import Tracer
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Claim, Document, Inspection, Request
from ferroscope.core.states import Event
from ferroscope.db.store import Store
from ferroscope.db.transaction import Fence, Transaction
from ferroscope.remote import command_fence
from ferroscope.secrets.references import SecretReader
from ferroscope.storage.reader import Archive

# The weight of the newest duration, and the share of the usual one after which to look for the first time.
_NEWEST: Final = 0.2
_SHARE: Final = 0.75
# Seconds: however slow others were, this one may be quick.
_LONGEST: Final = 15.0


class PowerTimes:
    """The usual seconds between a power command and its effect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usual: dict[Power, float] = {}

    def took(self, power: Power, seconds: float) -> None:
        """Learn from a change that took so long."""
        with self._lock:
            usual = self._usual.get(power, seconds)
            self._usual[power] = usual + _NEWEST * (seconds - usual)

    def first_look(self, power: Power) -> float:
        """Return after how many seconds it is worth to look for the first time; 0 if that is not known."""
        with self._lock:
            return min(_SHARE * self._usual.get(power, 0.0), _LONGEST)


T = TypeVar("T")

# Seconds between two checks whether an inspection is still wanted.
_CHECK_INTERVAL: Final = 1.0

_log = structlog.get_logger(__name__)


class StoppedError(Exception):
    """The process is stopping; the attempt was interrupted and its request goes back to the queue."""


class SupersededError(Exception):
    """The inspection is about to be ended, so its start must not command the machine any more."""

    def __init__(self, event: Event) -> None:
        self.event = event
        super().__init__(f"superseded by a request to {event} the inspection")


class Services(msgspec.Struct, frozen=True):
    """What all attempts of a worker use.

    ``process`` names the process in timelines. ``claim_valid_for`` returns for how many seconds a claim is certainly
    still this member's that was confirmed at that time of the monotonic clock. ``secrets`` decrypts those of a node.
    ``attached``: the attached Ironic, if there is one. ``tracer``: None if inspections are not
    traced. ``power_times``: of its power changes. ``images`` checks what BMCs are told to boot.
    """

    store: Store
    archive: Archive
    settings: Settings
    clock: Clock
    stop: StopFlag
    process: str
    claim_valid_for: Callable[[float], float] = lambda _confirmed_at: math.inf
    secrets: SecretReader = msgspec.field(default_factory=SecretReader)
    attached: Attached = msgspec.field(default_factory=Attached)
    tracer: Tracer | None = None
    power_times: PowerTimes = msgspec.field(default_factory=PowerTimes)
    images: Images = msgspec.field(default_factory=Unchecked)


class Attempt:
    """``rerun``: an earlier attempt may have had effects outside. ``progress`` maps each intent to what it recorded.

    ``confirmed_at`` is a time of the monotonic clock *before* the claim was last written: the process may have been
    frozen, and replaced, between that write and now.
    """

    def __init__(
        self,
        claim: Claim,
        inspection: Inspection | None,
        services: Services,
        *,
        rerun: bool = False,
        confirmed_at: float | None = None,
    ) -> None:
        self.claim = claim
        self.rerun = rerun
        self.progress: Document = dict(claim.request.progress)
        self._inspection = inspection
        self._services = services
        self._checked_at = services.clock.monotonic()
        self._confirmed_at = self._checked_at if confirmed_at is None else confirmed_at
        self._revoked = False

    @property
    def request(self) -> Request:
        return self.claim.request

    def intended(self, effect: str) -> bool:
        """Whether this or an earlier attempt recorded the intent of ``effect``."""
        return effect in self.progress

    def intend(
        self,
        effect: str,
        fence: Fence | None = None,
        *,
        seen: Document | None = None,
        save: Callable[[Transaction], None] = lambda _tx: None,
    ) -> None:
        """Record, durably and under the claim, that ``effect`` is about to happen, and when. ``ClaimLostError``.

        ``fence`` belongs to a lease under which it happens, in addition to the claim. ``seen`` is what a later attempt
        has to know about the state before the effect. ``save`` writes more in the same transaction.
        """

        def work(tx: Transaction) -> None:
            tx.requests.hold(self.claim)
            if fence is not None:
                fence(tx)
            save(tx)
            self.progress[effect] = {**(seen or {}), "at": tx.now}
            tx.requests.hold(self.claim, progress=self.progress)

        asked_at = self._services.clock.monotonic()
        self._services.store.write(work)
        self._confirmed_at = asked_at

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
                with command_fence.fenced(self._valid_for):
                    return call()
            except BmcError as exc:
                if exc.not_done and intent is not None:
                    self._withdraw(intent)
                raise
            except command_fence.TooLateError:
                _log.warning("command not sent: the claim may have been lost", node=self.request.node)
                self.pause(self._services.settings.worker.heartbeat_interval)

    def _withdraw(self, effect: str) -> None:
        self.progress.pop(effect, None)
        self._services.store.write(lambda tx: tx.requests.hold(self.claim, progress=self.progress))

    def confirm(self) -> None:
        """Call this before an effect outside. ``ClaimLostError``; ``SupersededError`` as in ``check_superseded``.

        The store is asked only if some time has passed since the claim was last written.
        """
        now = self._services.clock.monotonic()
        if now - self._confirmed_at > self._services.settings.worker.heartbeat_interval or self._valid_for() <= 0:
            self._services.store.write(lambda tx: tx.requests.hold(self.claim), durable=False)
            self._confirmed_at = now
        self.check_superseded()

    def check_superseded(self) -> None:
        """Raise ``SupersededError`` in a start whose inspection is to be ended; asks the store once a second."""
        now = self._services.clock.monotonic()
        if self.request.event is not Event.INSPECT or now - self._checked_at < _CHECK_INTERVAL:
            return
        pending = self._services.store.read(lambda tx: tx.requests.pending(self.request.node))
        self._checked_at = now
        for other in pending:
            if self._is_ended_by(other):
                raise SupersededError(other.event)

    def pause(self, seconds: float) -> None:
        """Wait; ``StoppedError`` if the process is stopping, ``SupersededError`` as in ``check_superseded``."""
        clock = self._services.clock
        until = clock.monotonic() + seconds
        left = seconds
        while True:
            if self._services.stop.wait(min(left, _CHECK_INTERVAL)):
                raise StoppedError
            self.check_superseded()
            left = until - clock.monotonic()
            if left <= 0:
                return

    def revoke(self) -> None:
        """Send no more commands: the claim is being given up while this attempt is still running."""
        self._revoked = True

    def _valid_for(self) -> float:
        return 0.0 if self._revoked else self._services.claim_valid_for(self._confirmed_at)

    def _is_ended_by(self, other: Request) -> bool:
        # A time-out that was requested before this attempt does not count: the clock restarted with the attempt.
        if other.event is Event.TIMEOUT and self._inspection is not None:
            return other.created_at >= (self._inspection.clock_since or 0.0)
        return other.event is Event.DELETE or (other.event in ENDING and other.inspection == self.request.inspection)
