"""Services that do not check who calls back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferroscope.core import lookup
from ferroscope.core.lookup import CallbackProof, CallbackVerdict
from tests.simulation.bugs.registry import bug

_judge = lookup.judge_callback


@bug("secret-unchecked", "a callback is accepted whatever secret it has", rule="I10", seeds=3, intruders=True)
def _() -> Iterator[Any]:
    yield lookup, "judge_callback", lambda *_: CallbackVerdict(CallbackProof.VERIFIED, accepted=True)


@bug(
    "secret-missing-accepted", "a callback is accepted if it has no secret at all", rule="I10", seeds=3, intruders=True
)
def _() -> Iterator[Any]:
    def judge(mode: Any, inspection: Any, given: str | None) -> CallbackVerdict:
        return _judge(mode, inspection, given) if given else CallbackVerdict(CallbackProof.MISSING, accepted=True)

    yield lookup, "judge_callback", judge
