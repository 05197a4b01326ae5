"""The BMC of an attempt: its addresses, and its driver with an observer of every call.

Drivers do not know that they are observed, and tasks call them as usual. The observer learns which BMCs are silent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, Final, Protocol, cast

import structlog

from ferroscope.contracts.bmc import (
    Bmc,
    ChangesPassword,
    ClearsBootDevice,
    ForcesOff,
    ListsNics,
    OutOfBand,
    Power,
    ReportsHealth,
    ShowsRestarts,
    SoftPower,
    SoftReboot,
    TellsMachines,
)
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.images import AttachesMedia, RamdiskBoot
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.telemetry import Span, Tracer, span_of, trace_of
from ferroscope.core.bmc_access import hosts, is_address
from ferroscope.core.host_spelling import canonical_host
from ferroscope.core.model import Inspection, Node, Request
from ferroscope.core.reasons import UNAVAILABLE, Reason
from ferroscope.core.secrets import holds_concealed
from ferroscope.core.states import Event
from ferroscope.core.values import normalized_ip
from ferroscope.remote import processor_delay, resolver
from ferroscope.remote.resolver import UnresolvedError

_PHASES: Final = {Event.INSPECT: "starting", Event.CONTINUE: "processing", Event.FINISH: "processing"}


class Trail:
    """``clock`` is the host's; the spans of phases have the times of the database."""

    def __init__(self, tracer: Tracer, clock: Clock, inspection: Inspection, request: Request) -> None:
        self._tracer, self._clock, self._inspection, self._request = tracer, clock, inspection, request
        self._id = secrets.token_hex(8)
        self._began = clock.time()
        self._step: tuple[str, float] | None = None

    def begins(self, step: str) -> None:
        """The next step begins, and the one before it has ended; "": none begins."""
        now = self._clock.time()
        if self._step is not None:
            name, began = self._step
            self._record(Span(name=name, trace=self._trace, id="", parent=self._id, began=began, ended=now))
        self._step = (step, now) if step else None

    def time(self) -> float:
        return self._clock.time()

    def record_command(self, command: str, driver: str, began: float, error: str) -> None:
        """Record a call of the BMC."""
        now = self._clock.time()
        self._record(
            Span(
                name=f"bmc {command}", trace=self._trace, id="", parent=self._id, began=began, ended=now,
                kind="client", error=error, attributes={"ferroscope.driver": driver},
            )
        )  # fmt: skip

    def record_end(self, outcome: str, error: str) -> None:
        """Record the attempt."""
        self.begins("")
        attributes: dict[str, str | int] = {"ferroscope.attempt": self._request.attempt, "ferroscope.outcome": outcome}
        self._record(
            Span(
                name=f"worker {self._request.event}", trace=self._trace, id=self._id,
                parent=span_of(self._inspection, _PHASES.get(self._request.event, "")),
                began=self._began, ended=self._clock.time(), error=error, attributes=attributes,
            )
        )  # fmt: skip

    @property
    def _trace(self) -> str:
        return trace_of(self._inspection)[0]

    def _record(self, span: Span) -> None:
        self._tracer.record(span)


_ABILITIES: Final = (
    Bmc, RamdiskBoot, AttachesMedia, ShowsRestarts, ClearsBootDevice, OutOfBand, ListsNics, ReportsHealth, ForcesOff,
    SoftPower, SoftReboot, ChangesPassword, TellsMachines,
)  # fmt: skip
# Every method that talks to a BMC; a driver has those of ``Bmc``, and any of the optional ones.
_CALLS: Final = tuple(
    name
    for abilities in _ABILITIES
    for name, member in vars(abilities).items()
    if isfunction(member) and not name.startswith("_") and name != "validate"
)

# They prove one password after the other.
_LOGINS: Final = frozenset(name for name, member in vars(ChangesPassword).items() if isfunction(member))

# Returns the node with its secrets in plain text; ``BmcError``.
Revealed = Callable[[Node], Node]

_log = structlog.get_logger(__name__)


class BmcObserver(Protocol):
    """Observes the BMC calls of one attempt."""

    def call_started(self) -> None: ...

    def call_ended(self, *, answered: bool) -> None:
        """``answered``: the BMC responded, even if it refused."""

    def retry_after(self) -> float:
        """Return for how many seconds the BMC should not be called."""


class Unobserved:
    """Observes nothing."""

    def call_started(self) -> None: ...

    def call_ended(self, *, answered: bool) -> None: ...

    def retry_after(self) -> float:
        return 0.0


# Seconds for which a power state counts that was reported. Short: the machine might be used by others in the meantime,
# and must be left alone then.
_RECENT_SECONDS: Final = 2.0


class ReportedPower:
    """The power state as an attached Ironic, or the BMC, has just reported it: it is not asked again for a moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[Power, float] | None = None

    def saw(self, power: Power, *, at: float | None = None) -> None:
        """Remember what was answered to a question that was asked ``at`` that time, or else just now."""
        self._seen = (power, self._clock.monotonic() if at is None else at)

    def forget(self) -> None:
        """The power is about to change."""
        self._seen = None

    def recent_power(self) -> Power | None:
        """Return what was reported a moment ago; None if it has to be asked."""
        if self._seen is None or self._clock.monotonic() - self._seen[1] > _RECENT_SECONDS:
            return None
        return self._seen[0]


class ObservedDriver:
    """A driver whose calls are observed and get the node with its secrets in plain text.

    Has exactly the methods that ``driver`` has: callers find out by them what it can do. A password that the BMC has
    rejected is not sent again, whatever else the attempt would call: BMCs lock accounts.
    """

    def __init__(self, driver: Bmc, observer: BmcObserver, revealed: Revealed, trail: Trail | None) -> None:
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
        self._observer.call_started()
        answered, error = True, ""
        began = 0.0 if self._trail is None else self._trail.time()
        try:
            value = _call_unhurried(call, node, *arguments, **options)
            # Drivers come from elsewhere, too: whatever one says that is none of the answers is unknown.
            return Power.of(value) if name == "get_power" else value
        except BmcError as exc:
            answered, error = exc.reason not in UNAVAILABLE, str(exc.reason)
            if exc.reason is Reason.BMC_CREDENTIALS and name not in _LOGINS:
                self._rejected = exc
            raise
        finally:
            self._observer.call_ended(answered=answered)
            if self._trail is not None:
                self._trail.record_command(name, node.driver, began, error)


def _call_unhurried(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the BMC; a failure to answer while this process itself was late is none of the BMC's."""
    with processor_delay.measure_delay() as delay:
        try:
            return call(*arguments, **options)
        except BmcError as exc:
            if exc.reason not in UNAVAILABLE or not (seconds := delay.excuses()):
                raise
            message = f"{exc}; this worker waited {seconds:.1f} s for a processor meanwhile, so that is not counted"
            late = BmcError(message, transient=True, reason=Reason.BMC_BUSY, waits=True)
            late.not_done = exc.not_done
            raise late from None


def observe_driver(
    driver: Bmc | None,
    observer: BmcObserver,
    revealed: Revealed = lambda node: node,
    trail: Trail | None = None,
) -> Bmc | None:
    """Return the driver with all its calls observed, which get the ``revealed`` node; None if there is none."""
    return None if driver is None else cast("Bmc", ObservedDriver(driver, observer, revealed, trail))


def resolve_addresses(node: Node, *, seconds: float) -> frozenset[str]:
    """Return the literal and resolved addresses in the ``*_address`` keys of ``driver_info``, without loopback ones.

    Call it outside transactions: DNS may be slow. A name that does not resolve within ``seconds`` is kept as it is and
    logged. A BMC that is reached through another one has none of the other's addresses.
    """
    addresses: set[str] = set()
    for key, host in hosts(node.driver_info):
        addresses.update(_addresses(node, key, host, seconds))
    return frozenset(addresses)


def _addresses(node: Node, key: str, host: str, seconds: float) -> set[str]:
    if is_address(host):
        address = normalized_ip(host)
        return {address} if address else set()
    try:
        host_addresses = resolver.resolve(host, seconds, bmc=True)
    except UnresolvedError as exc:
        _log.warning("cannot resolve a BMC address", node=node.uuid, field=key, error=str(exc))
        return {canonical_host(host)}
    resolved = {normalized for text in host_addresses if (normalized := normalized_ip(text))}
    return resolved | {canonical_host(host)} if resolved else set()
