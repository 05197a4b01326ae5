"""Callbacks that nobody here waits for: an ironic-inspector that runs beside this service may do so.

The callback is forwarded while the caller waits. If there is no answer from there, the caller is asked to try again,
which ramdisks do; if the callback is refused there too, it is refused here like any other.
"""

from __future__ import annotations

from typing import Any, Final

from ferroscope.api.baremetal import refusals
from ferroscope.api.http.errors import UnavailableError
from ferroscope.api.http.route import ApiContext, Call
from ferroscope.contracts.remote import ForwardBusyError, ForwardError
from ferroscope.core import lookup
from ferroscope.core.model import Node
from ferroscope.core.reasons import Reason

STEP: Final = "callback-forwarded"
_FORWARDED: Final = frozenset({Reason.LOOKUP_UNKNOWN, Reason.LOOKUP_NOT_WAITING})
_AGAIN: Final = {"Retry-After": "2"}


def concerns(context: ApiContext, refusal: lookup.Refused, call: Call[Any, None]) -> bool:
    """Whether the callback is forwarded: nobody waits for it here, and it was not forwarded to us."""
    if context.forwarder is None or call.forwarded or refusal.reason not in _FORWARDED:
        return False
    # A source that has had too many failures does not burden the other service.
    return not context.callers.wait(call.source, context.clock.monotonic())


def forward(context: ApiContext, refusal: lookup.Refused, call: Call[Any, None]) -> Node | None:
    """Return the node by which the other service accepted the callback, with its UUID only; None: it refused it.

    ``UnavailableError`` if it does not answer.
    """
    if context.forwarder is None:
        return None
    try:
        uuid = context.forwarder.forward(call.raw)
    except ForwardBusyError as exc:
        _note(context, "busy", refusal, call, str(exc))
        raise UnavailableError("Too many callbacks at once. Try again in a few seconds.", _AGAIN) from None
    except ForwardError as exc:
        _note(context, "failed", refusal, call, str(exc))
        raise UnavailableError("The callback cannot be accepted now. Try again in a few seconds.", _AGAIN) from None
    _note(context, "refused" if uuid is None else "accepted", refusal, call, "")
    if uuid is None:
        return None
    if refusal.nodes:
        message = "callback forwarded to ironic-inspector, which accepted it"
        context.store.write(
            lambda tx: refusals.add_entry(context, tx, refusal.nodes[0], STEP, message, source=call.source)
        )
    return Node(uuid=uuid, driver="")


def _note(context: ApiContext, outcome: Any, refusal: lookup.Refused, call: Call[Any, None], why: str) -> None:
    """Count it, and log it, subject to the rate limit of refused callbacks."""
    context.meter.forwarded(outcome)
    left_out = context.refusals.admit(context.clock.monotonic())
    if left_out is None:
        return
    log = context.log.info if outcome == "accepted" else context.log.warning
    log(
        "callback forwarded to ironic-inspector",
        outcome=outcome,
        why=why,
        reason=str(refusal.reason),
        source=call.source,
        nodes=list(refusal.nodes[:8]),
        left_out=left_out,
    )
