"""What all attempts of a worker use, and what follows from an error that interrupts one."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError, StoreError, StoreUnavailableError
from ferroscope.contracts.remote import Images, Unchecked
from ferroscope.contracts.store import Clock, Later, Part, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.delivery import Drop, Fail, Outcome, Retry
from ferroscope.core.losses import count_attempts
from ferroscope.core.model import Port, Request
from ferroscope.core.states import Event
from ferroscope.db import Store, Transaction
from ferroscope.secrets.references import SecretReader
from ferroscope.storage.reader import Archive
from ferroscope_client.core.reasons import Reason

if TYPE_CHECKING:
    from ferroscope.worker.attempt import Attempt, Locked

# Pause before a failed request is attempted again; for a BMC it doubles with each attempt.
RETRY_SECONDS: Final = 1.0
# From a power command to the first question whether it was obeyed; many BMCs show it at once.
POWER_POLL_SECONDS: Final = 0.05
# A request that waits for an attached Ironic is tried again this often; most calls then fail at once.
OUTAGE_RETRY_SECONDS: Final = 5.0
# A request is tried again this often if its secrets need a key that this process lacks.
_KEY_RETRY_SECONDS: Final = 10.0
# How often the requests that end an inspection are read.
_ENDINGS_READ_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class PowerTimes(Protocol):
    """How long power changes usually take, where a look at the power is a request to a busy service."""

    def first_look(self, power: Power) -> float:
        """Return after how many seconds the first look is worthwhile; 0 if that is not known."""

    def learn_change(self, power: Power, seconds: float) -> None:
        """Learn how long a change took."""


class BmcObserver(Protocol):
    """Observes the BMC calls of one attempt."""

    def call_started(self) -> None: ...

    def call_ended(self, *, answered: bool) -> None:
        """``answered``: the BMC responded, even if it refused."""

    def retry_after(self) -> float:
        """Return for how many seconds the BMC should not be called."""


class Services:
    """One instance serves all threads of a worker.

    ``member`` holds the claims; ``process`` names the process in timelines. ``claim_valid_for`` returns for how many
    seconds a claim is certainly still this member's that was confirmed at that time of the monotonic clock.
    ``secrets`` decrypts the secrets of a node. ``images`` checks what BMCs are to boot. ``power_times`` None: a look at
    the power costs little. ``power_poll_seconds``: from one question for the power state to the next, at first.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        stop: StopFlag,
        *,
        member: str,
        process: str,
        meter: Meter = SILENT,
        archive: Archive | None = None,
        claim_valid_for: Callable[[float], float] = lambda _confirmed_at: math.inf,
        secrets: SecretReader | None = None,
        images: Images | None = None,
        power_times: PowerTimes | None = None,
        power_poll_seconds: float = POWER_POLL_SECONDS,
    ) -> None:
        self.store, self.settings, self.clock, self.stop = store, settings, clock, stop
        self.member, self.process, self.meter = member, process, meter
        self.archive = archive or Archive(store, {})
        self.claim_valid_for = claim_valid_for
        self.secrets = secrets or SecretReader()
        self.images = images or Unchecked()
        self.power_times, self.power_poll_seconds = power_times, power_poll_seconds
        self.delivery = settings.worker.delivery()
        self.heartbeat_seconds = settings.worker.heartbeat_seconds
        self.endings = Endings(store, clock)


class Endings:
    """Which inspections are about to be ended, as one thread has read it for all that start machines.

    Each start asks once a second, and hundreds may wait for their BMCs at the same time.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._by_node: Mapping[str, Sequence[Request]] = {}

    def of(self, node: str) -> Sequence[Request]:
        """Return the requests to end an inspection of the node, or to delete it, that no worker has claimed.

        They may be two seconds old. The thread that reads may raise ``StoreUnavailableError``; the others do not wait
        for it.
        """
        if self._clock.monotonic() - self._read_at >= _ENDINGS_READ_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()
        return self._by_node.get(node, ())

    def _read(self) -> None:
        now = self._clock.monotonic()
        by_node = defaultdict(list)
        for request in self._store.read(lambda tx: tx.requests.endings(), snapshot=False):
            by_node[request.node].append(request)
        self._by_node, self._read_at = by_node, now


Task = Callable[["Attempt"], Outcome]
# The parts of an inspection's data, the ports of its node, and the revision of the rules.
StoredData = tuple[dict[Part, bytes], list[Port], int]


class ReadsAhead(ABC):
    """A task that begins with a read, which is made with the claim: that saves a round trip and a transaction."""

    @abstractmethod
    def __call__(self, attempt: Attempt) -> Outcome: ...

    @abstractmethod
    def ahead(self, tx: Transaction, request: Request) -> Later[StoredData]:
        """Ask for it, after the request's node was asked to be locked. It must not fail, whatever is stored."""


class SameThread:
    """A place for the request that follows: the thread that carried out the one before it."""

    def take(self, locked: Locked) -> Locked | None:
        return locked

    def release(self) -> None: ...


class StoppedError(Exception):
    """The process is stopping; the attempt was interrupted and its request goes back to the queue."""


class SupersededError(Exception):
    """The inspection is about to be ended, so its start must not command the machine any more."""

    def __init__(self, event: Event) -> None:
        self.event = event
        super().__init__(f"superseded by a request to {event} the inspection")


INTERRUPTIONS: Final = (StoppedError, SupersededError, StoreError, BmcError)


def outcome_of(attempt: Attempt, error: Exception) -> Outcome:
    """Return what follows from one of the ``INTERRUPTIONS``: a failure, another attempt, or waiting."""
    if isinstance(error, StoppedError):  # another process takes over at once
        return Retry(0.0, Reason.INTERRUPTED, "the worker was stopped", counted=False)
    if isinstance(error, SupersededError):  # the request that ends the inspection cleans up, too
        return Drop(Reason.STALE_REQUEST, str(error))
    if isinstance(error, BmcError):
        return _outcome_of_call(attempt, error)
    # Not an error of the inspection, which ends by its time-out at the latest.
    _log.warning("a task cannot reach the database", request=attempt.request.event, error=str(error))
    return Retry(RETRY_SECONDS, Reason.STORE_UNAVAILABLE, str(error), counted=False)


def _outcome_of_call(attempt: Attempt, error: BmcError) -> Outcome:
    if not error.transient:
        return Fail(error.reason, str(error))
    if not error.waits:
        delay = RETRY_SECONDS * 2.0 ** (count_attempts(attempt.request) - 1)
        pause = 0.0 if attempt.bmc_observer is None else attempt.bmc_observer.retry_after()
        return Retry(max(delay, pause), error.reason, str(error))
    if error.reason is Reason.ENCRYPTION_KEY_MISSING:  # other processes may have the key
        return Retry(_KEY_RETRY_SECONDS, error.reason, str(error), counted=False)
    if error.reason is not Reason.NODE_LOCKED:  # however long an attached Ironic is away
        return Retry(OUTAGE_RETRY_SECONDS, error.reason, str(error), counted=False)
    try:
        waited = attempt.store.read(lambda tx: tx.now) - attempt.request.created_at
    except StoreUnavailableError as exc:
        return outcome_of(attempt, exc)
    ironic = attempt.settings.ironic
    return Retry(ironic.retry_interval, error.reason, str(error), counted=waited > ironic.lock_timeout)
