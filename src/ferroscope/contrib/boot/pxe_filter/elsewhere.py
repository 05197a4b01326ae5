"""MACs of machines that an ironic-inspector inspects, which boot through the same filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ferroscope.config.added import backend as selected
from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.store import Clock, StopFlag

if TYPE_CHECKING:
    from ferroscope.core.finding import Finding

# Seconds between two looks at the database of an ironic-inspector, at most.
MAX_PERIOD_SECONDS: Final = 30.0


class MacsElsewhere(Protocol):
    """What knows the MACs of machines that another service inspects; ``start`` returns after the first look."""

    def start(self) -> None: ...

    def active(self) -> frozenset[str]: ...

    def status(self) -> str: ...

    def problem(self) -> Finding | None: ...


def build_macs_elsewhere(settings: PxeFilterSettings, clock: Clock, stop: StopFlag) -> MacsElsewhere | None:
    """Return the reader of the MACs that an ironic-inspector inspects, if one is configured, whether or not its
    database answers; ``SetupError`` if that cannot be used.
    """
    if not settings.inspector_connection:
        return None
    period = min(settings.sync_period or MAX_PERIOD_SECONDS, MAX_PERIOD_SECONDS)
    build = selected("pxe_filter.inspector_connection")
    macs_elsewhere: MacsElsewhere = build(settings.inspector_connection, period=period, clock=clock, stop=stop)
    return macs_elsewhere
