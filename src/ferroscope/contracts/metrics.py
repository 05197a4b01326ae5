"""Metrics, recorded as events happen. Recording never fails or blocks, and takes a few microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol

import msgspec

from ferroscope.contracts.tracing import Tracer
from ferroscope.core.model import Inspection, Node
from ferroscope.core.notification import ChangeView
from ferroscope.core.states import Event, Transition


class Moved(msgspec.Struct, frozen=True):
    """A transition and the resulting node; also its inspection, if the transition has begun or ended it.

    ``replaced`` is the inspection that was in progress before, if the transition has begun another one instead.
    """

    transition: Transition
    node: Node
    inspection: Inspection | None = None
    replaced: Inspection | None = None


class Meter(Protocol):
    """Records metrics; each method is called after the event it records. Durations are in seconds.

    ``tracer`` takes the spans of inspections; None if they are not traced.
    """

    tracer: Tracer | None

    def moved(self, moved: Moved) -> None:
        """Record a committed transition of a node, and with the end of an inspection its reason and durations."""

    def hardware_changed(self, changes: Iterable[ChangeView]) -> None:
        """Record committed differences from the previous inspection of a machine."""

    def carried_out(self, event: Event, outcome: str, seconds: float) -> None:
        """Record an attempt of a request; ``outcome`` is its result in lower case, or ``lost``."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an answered API request; ``route`` is the template of its path."""

    def db_error(self, kind: Literal["busy", "unavailable"]) -> None:
        """Record a database error: a conflict, after which the transaction is retried, or an outage."""

    def renewal_failed(self, lease: str) -> None:
        """Record a failed renewal of a lease."""

    def pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None:
        """Set the state of this host's PXE filter, and the number of MACs in its sets."""

    def pxe_filter_applied(self, seconds: float) -> None:
        """Record an applied change of the sets."""

    def discovered(self, outcome: Literal["discovered", "limited", "rejected"]) -> None:
        """Record a call of an unknown machine, and whether it was enrolled as a node."""

    def forwarded(self, outcome: Literal["accepted", "refused", "failed", "busy"]) -> None:
        """Record a callback that was forwarded to ironic-inspector; ``busy``: it was not, there were too many."""

    def failover(self, what: str) -> None:
        """Record a step of the remediation of a Kubernetes node, such as ``power-off`` or ``proven``."""

    def machines(self, known: int, waiting: int) -> None:
        """Set the number of Machine objects in Kubernetes, and how many of them are still to be looked at."""

    def machine_failed(self) -> None:
        """Record that a Machine object could not be brought in step with its node; it is tried again."""

    def notified(self, target: str, outcome: Literal["delivered", "failed", "dead"]) -> None:
        """Record an attempt to deliver an event; ``dead``: it was given up."""


class Silent:
    """A ``Meter`` that counts nothing."""

    tracer: Tracer | None = None

    def moved(self, moved: Moved) -> None: ...

    def hardware_changed(self, changes: Iterable[ChangeView]) -> None: ...

    def carried_out(self, event: Event, outcome: str, seconds: float) -> None: ...

    def answered(self, method: str, route: str, status: int, seconds: float) -> None: ...

    def db_error(self, kind: Literal["busy", "unavailable"]) -> None: ...

    def renewal_failed(self, lease: str) -> None: ...

    def pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None: ...

    def pxe_filter_applied(self, seconds: float) -> None: ...

    def discovered(self, outcome: Literal["discovered", "limited", "rejected"]) -> None: ...

    def forwarded(self, outcome: Literal["accepted", "refused", "failed", "busy"]) -> None: ...

    def failover(self, what: str) -> None: ...

    def machines(self, known: int, waiting: int) -> None: ...

    def machine_failed(self) -> None: ...

    def notified(self, target: str, outcome: Literal["delivered", "failed", "dead"]) -> None: ...


SILENT: Final[Meter] = Silent()
