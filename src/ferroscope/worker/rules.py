"""The rules' part of processing: apply them to the task's copies, make the calls that they ask for.

What they changed is committed with everything else, so a failure leaves nothing behind. Calls are made
before that, once per attempt: whoever is called may be called again when a worker dies in between.
"""

from __future__ import annotations

from typing import Final

import structlog

from ferroscope.contracts.remote import Web, WebError
from ferroscope.contracts.store import Transaction
from ferroscope.core import bmc_access
from ferroscope.core.model import Document, Severity
from ferroscope.rules import engine
from ferroscope.rules.builtin import RuleBook, allowed
from ferroscope.rules.compile import CompiledRule
from ferroscope.rules.context import ApiCall, Bench, Logged
from ferroscope.rules.data import RuleFailedError
from ferroscope.rules.engine import RuleSet
from ferroscope.worker.context import TaskContext

_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_ALL_CALLS: Final = 60.0  # seconds for the calls of one inspection, tries and pauses included
_SEVERITIES: Final = {"warning": Severity.WARNING, "error": Severity.ERROR, "critical": Severity.ERROR}

_log = structlog.get_logger(__name__)


class RuleStep:
    """One instance serves all threads. Without ``web`` no rule can call anybody."""

    def __init__(self, book: RuleBook | None = None, web: Web | None = None) -> None:
        self._book = book or RuleBook()
        self._web = web

    def current(self, tx: Transaction) -> RuleSet:
        """Return the rules as they are stored at the moment of ``tx``."""
        return self._book.current(tx)

    def apply(self, context: TaskContext, rules: RuleSet, inventory: Document, plugin_data: Document) -> None:
        """Run the rules on the task's copies and on ``plugin_data``; ``RuleFailedError``."""
        if not rules.rules:
            return
        bench = Bench(context, inventory, plugin_data, drivers=context.settings.drivers.enabled)
        applied = engine.run(rules, bench, context.settings.inspection_rules.mask_secrets)
        _check_place(context, engine.titles(applied[:5]))
        self._call(context, bench.calls)
        for logged in bench.logged:
            _tell(context, logged)
        if applied:
            _note(context, rules, applied)

    def _call(self, context: TaskContext, calls: list[ApiCall]) -> None:
        targets = context.settings.inspection_rules.api_call_targets
        for call in calls:
            if not all(allowed(url, targets) for url in (call.url, call.proxy) if url is not None):
                message = "is not at or below any of [inspection_rules] api_call_targets"
                raise _failed(call, f"{_place(call)} {message}")
        if calls:
            context.intend("api-call")
        deadline = context.clock.monotonic() + _ALL_CALLS
        for call in calls:
            answer = self._until_answered(context, call, deadline)
            if not 200 <= answer < 400:
                raise _failed(call, f"{_place(call)} answered {answer}")
            if not call.sensitive:
                context.note("rules", f"the rule {call.rule} called {_place(call)}: {answer}")

    def _until_answered(self, context: TaskContext, call: ApiCall, deadline: float) -> int:
        """Return the status of the last try."""
        for number in range(call.retries + 1):
            if number:
                context.pause(call.backoff * 2 ** (number - 1))
            left = deadline - context.clock.monotonic()
            if left <= 0 or self._web is None:
                break
            context.confirm()
            last = number == call.retries
            try:
                status = self._web.get(
                    call.url, headers=call.headers, timeout=min(call.timeout, left), proxy=call.proxy
                )
            except WebError as exc:
                if last:
                    raise _failed(call, f"{_place(call)} did not answer: {exc}") from None
                continue
            if last or status not in _AGAIN:
                return status
        raise _failed(call, f"{_place(call)} did not answer in the {_ALL_CALLS:.0f} s that all calls have together")


def _check_place(context: TaskContext, applied: str) -> None:
    """Refuse rules that would send stored secrets to where the machine says that its BMC is.

    What they set together with a place is sent there only once an operator has agreed, or within ``bmc_networks``.
    """
    changed, kept = bmc_access.exposed(context.before, context.node, ())
    if kept:
        message = f"with another {', '.join(changed)}, the stored {', '.join(kept)} would go to whoever is there"
        raise RuleFailedError(applied, f"rules cannot be carried out ({applied}): {message}")
    if changed:
        bmc_access.confirm(context.node, by_operator=False)


def _place(call: ApiCall) -> str:
    """Return where a call goes, without what may be secret in its query."""
    return call.url.partition("?")[0]


def _failed(call: ApiCall, message: str) -> RuleFailedError:
    said = "an API call failed" if call.sensitive else message
    return RuleFailedError(call.rule, f"the rule {call.rule} cannot be carried out: {said}")


def _tell(context: TaskContext, logged: Logged) -> None:
    getattr(_log, logged.level)(logged.message, rule=logged.rule, node=context.node.uuid)
    severity = _SEVERITIES.get(logged.level, Severity.INFO)
    context.note("rules", logged.message, severity=severity, detail={"rule": logged.rule})


def _note(context: TaskContext, rules: RuleSet, applied: list[CompiledRule]) -> None:
    detail = {"applied": [rule.rule.uuid for rule in applied]}
    shown = engine.titles(applied[:5])
    more = f" and {len(applied) - 5} more" if len(applied) > 5 else ""
    context.note("rules", f"{len(applied)} of {len(rules.rules)} rules applied: {shown}{more}", detail=detail)
