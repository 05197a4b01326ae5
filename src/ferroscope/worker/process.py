"""Process what the ramdisk sent, or process stored data again: hooks and rules on copies, nothing else.

Their changes, the plugin data and the new state are committed together by the loop, so a worker
that is killed in here leaves nothing behind and the request is simply run again. No BMC is asked
here: who fails lets the loop ask for it (event ``fail``), for nothing that computes waits for a BMC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import structlog

from ferroscope.contracts.data import Part
from ferroscope.contracts.remote import Web, WebError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import bmc_access, json_safety
from ferroscope.core.delivery import Fail, Next, Outcome
from ferroscope.core.model import Document, Port, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.rules import engine
from ferroscope.rules.builtin import RuleCache, allowed
from ferroscope.rules.compile import CompiledRule
from ferroscope.rules.context import ApiCall, Logged, RuleContext
from ferroscope.rules.data import RuleFailedError
from ferroscope.rules.engine import RuleSet
from ferroscope.worker import out_of_band
from ferroscope.worker.context import TaskContext

# The rules' part of processing: apply them to the task's copies, make the calls that they ask for.
#
# What they changed is committed with everything else, so a failure leaves nothing behind. Calls are made
# before that, once per attempt: whoever is called may be called again when a worker dies in between.

_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_ALL_CALLS: Final = 60.0  # seconds for the calls of one inspection, tries and pauses included
_SEVERITIES: Final = {"warning": Severity.WARNING, "error": Severity.ERROR, "critical": Severity.ERROR}

_log = structlog.get_logger(__name__)


class RuleStep:
    """One instance serves all threads. Without ``web`` no rule can call anybody."""

    def __init__(self, cache: RuleCache | None = None, web: Web | None = None) -> None:
        self._rules = cache or RuleCache()
        self._web = web

    def current(self, tx: Transaction) -> RuleSet:
        """Return the rules as they are stored at the moment of ``tx``."""
        return self._rules.current(tx)

    def apply(self, context: TaskContext, rules: RuleSet, inventory: Document, plugin_data: Document) -> None:
        """Run the rules on the task's copies and on ``plugin_data``; ``RuleFailedError``."""
        if not rules.rules:
            return
        rule_context = RuleContext(context, inventory, plugin_data, drivers=context.settings.drivers.enabled)
        applied = engine.run(rules, rule_context, context.settings.inspection_rules.mask_secrets)
        _check_place(context, engine.titles(applied[:5]))
        self._call(context, rule_context.calls)
        for logged in rule_context.logged:
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


class ProcessTask:
    """The task of ``continue`` and ``reapply``."""

    def __init__(self, pipeline: Pipeline, rules: RuleStep) -> None:
        self._pipeline = pipeline
        self._rules = rules

    def __call__(self, context: TaskContext) -> Outcome:
        """Run the hooks, then the rules; a failure is the inspection's, with the reason of the hook or the rule."""
        ident = context.request.inspection or ""
        parts, context.ports, rules = context.store.read(lambda tx: self._load(tx, ident, context.node.uuid))
        if "inventory" not in parts:
            return Fail(Reason.DATA_MISSING, "no data is stored for this inspection")
        try:
            inventory = json_safety.decode(parts["inventory"])
            unprocessed = json_safety.decode(parts.get("unprocessed", b"{}"))
        except json_safety.TooManyContainersError as exc:
            return Fail(Reason.DATA_TOO_LARGE, f"the inspection data is not processed: {exc}")
        from_bmc = out_of_band.stored(parts)
        if from_bmc is not None:
            unprocessed |= {
                out_of_band.KEY: from_bmc,
                out_of_band.HARDWARE: out_of_band.beside(inventory, from_bmc),
            }
        try:
            plugin_data = self._pipeline.run(context, inventory, unprocessed, owned=True, begins=context.begins)
            context.begins("", "the rules")
            with _held_notes(context):
                self._rules.apply(context, rules, inventory, plugin_data)
            context.parts["plugin_data"] = encode(plugin_data)
            context.learn(inventory, plugin_data)
        except HookError as exc:
            return Fail(exc.reason, str(exc))
        except RuleFailedError as exc:
            return Fail(exc.reason, exc.message)
        context.note("processed", f"processed by the hooks {', '.join(self._pipeline.names)}")
        return Next(Event.FINISH)

    def _load(self, tx: Transaction, inspection: str, node: str) -> tuple[dict[Part, bytes], list[Port], RuleSet]:
        """Read all that hooks and rules work on, and the rules, at one moment."""
        parts = tx.data.load_later(inspection, ("inventory", "unprocessed", "out_of_band"))
        ports = tx.ports.list_later(Query(filters={"node": node}))
        rules = self._rules.current(tx)
        return parts.get(), list(ports.get()), rules


@contextlib.contextmanager
def _held_notes(context: TaskContext) -> Iterator[None]:
    """Keep the hooks' notes back until the rules have agreed; where they refuse, only warnings have come to pass."""
    held, context.notes = context.notes, []
    try:
        yield
    except RuleFailedError:
        held = [(when, entry) for when, entry in held if entry.severity is not Severity.INFO]
        raise
    finally:
        context.notes = held + context.notes
