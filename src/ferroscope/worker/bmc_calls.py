"""A driver whose every call is watched: when it began, and whether the BMC answered.

The drivers know nothing of that; tasks call them as ever. What watches learns from it which BMCs are silent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, Final, Protocol, cast

from ferroscope.contracts.bmc import Bmc, OutOfBand, RamdiskBoot, ResetTime
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason

# All that asks a BMC; a driver has those of ``Bmc``, and of the others some or none.
_CALLS: Final = tuple(
    name
    for abilities in (Bmc, RamdiskBoot, ResetTime, OutOfBand)
    for name, member in vars(abilities).items()
    if isfunction(member) and not name.startswith("_") and name != "validate"
)


class Watch(Protocol):
    """What is told of the calls of one attempt."""

    def began(self) -> None:
        """A call to the BMC begins."""

    def ended(self, *, answered: bool) -> None:
        """It has ended; ``answered``: the BMC said something, be it a refusal."""

    def pause(self) -> float:
        """Return for how many seconds the BMC should be left alone."""


class Unwatched:
    """Nobody watches."""

    def began(self) -> None: ...

    def ended(self, *, answered: bool) -> None: ...

    def pause(self) -> float:
        return 0.0


class Watched:
    """Has the calls that ``driver`` has, and no others: callers ask by them what it can do."""

    def __init__(self, driver: Bmc, watch: Watch) -> None:
        self.properties = driver.properties if hasattr(driver, "properties") else {}
        self.validate = driver.validate
        for name in _CALLS:
            call = getattr(driver, name, None)
            if call is not None:
                setattr(self, name, partial(_call, watch, call))


def watched(driver: Bmc | None, watch: Watch) -> Bmc | None:
    """Return the driver with all its calls watched; None where there is none."""
    return None if driver is None else cast("Bmc", Watched(driver, watch))


def _call(watch: Watch, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    watch.began()
    answered = True
    try:
        return call(*arguments, **options)
    except BmcError as exc:
        answered = exc.reason is not Reason.BMC_UNREACHABLE
        raise
    finally:
        watch.ended(answered=answered)
