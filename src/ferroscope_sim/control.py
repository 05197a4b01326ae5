"""The control calls of the simulator's port: look at the fleet, wait for it, begin anew.

``status`` (``names``: only these; ``nodes`` false: totals alone; ``log`` true: with traces), ``reset``,
``wait_off`` (``names``, ``timeout``), ``wait`` (``effect``, ``at_least``, ``timeout``), ``callback``
(``callback_url``) and ``faults`` (``on`` false: all BMCs work well and at once, until it is true). A wait that is not
fulfilled in time is answered with ``ok`` true and ``reached`` false. They are for benches and chaos tests; a BMC has
no such calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ferroscope_sim.fleet import Fleet
from ferroscope_sim.outcomes import Effect
from ferroscope_sim.protocol import Call, Reply, refuse, write


class Fail(Protocol):
    """Lets the BMCs be as their outcomes have it, or lets all of them work well."""

    def __call__(self, *, on: bool) -> Awaitable[None]: ...


class Control:
    """The control calls of one fleet."""

    def __init__(self, fleet: Fleet, fail: Fail) -> None:
        self._fleet = fleet
        self._fail = fail
        self._ops: Final[dict[str, Callable[[Call], Reply | Awaitable[Reply]]]] = {
            "status": self._status,
            "reset": self._reset,
            "wait_off": self._wait_off,
            "wait": self._wait,
            "callback": self._callback,
            "faults": self._faults,
        }

    def answer(self, call: Call) -> Reply | Awaitable[Reply]:
        """Carry out ``call``, at once or in time."""
        if call.op in self._ops:
            return self._ops[call.op](call)
        return Reply(refuse(f"there is no call {call.op!r}"))

    def _status(self, call: Call) -> Reply:
        status = self._fleet.status(call.names if call.nodes else (), log=call.log)
        return Reply(write(status=status))

    def _reset(self, call: Call) -> Reply:
        self._fleet.reset()
        return Reply(write())

    async def _wait_off(self, call: Call) -> Reply:
        reached = await self._fleet.wait_off(call.names, timeout=call.timeout)
        return Reply(write(reached=reached))

    def _wait(self, call: Call) -> Reply | Awaitable[Reply]:
        try:
            effect = Effect(call.effect)
        except ValueError:
            return Reply(refuse(f"effect must be one of: {', '.join(Effect)}"))
        return self._wait_for(effect, call)

    async def _wait_for(self, effect: Effect, call: Call) -> Reply:
        reached = await self._fleet.wait_for(effect, call.at_least, timeout=call.timeout)
        return Reply(write(reached=reached, total=getattr(self._fleet.totals, effect)))

    def _callback(self, call: Call) -> Reply:
        try:
            self._fleet.call_back_to(call.callback_url)
        except ValueError as error:
            return Reply(refuse(str(error)))
        return Reply(write(callback_url=call.callback_url))

    async def _faults(self, call: Call) -> Reply:
        await self._fail(on=call.on)
        return Reply(write(on=call.on))
