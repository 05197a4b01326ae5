"""Process what the ramdisk sent, or stored data again: run hooks and rules on copies.

Their changes, the plugin data and the new state are committed together by the loop, so a worker that is killed in here
leaves nothing behind, and the request simply runs again. No BMC is called here, since the compute lane never waits for
one: after a failure the loop puts a request to ``fail`` on the queue, which powers the machine off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.data import Part
from ferroscope.contracts.remote import Web, WebError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, json_safety
from ferroscope.core.delivery import Fail, Next, Outcome
from ferroscope.core.model import Document, Port, Severity
from ferroscope.core.node import Source, sourced, sourced_values
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.rules import engine
from ferroscope.rules.builtin import RuleCache, allowed
from ferroscope.rules.data import ApiCall, Logged, RuleContext, RuleFailedError, Unmatched
from ferroscope.rules.engine import CompiledRule, RuleSet
from ferroscope.worker import out_of_band, undo
from ferroscope.worker.context import TaskContext

# HTTP calls that rules ask for are made before the commit, once per attempt, so they are repeated if a worker dies in
# between.

_RETRIED_STATUS: Final = frozenset({429, 500, 502, 503, 504})
_ALL_CALLS: Final = 60.0  # seconds for the calls of one inspection, including retries and pauses
_MAX_UNMATCHED: Final = 50
_SEVERITIES: Final = {"warning": Severity.WARNING, "error": Severity.ERROR, "critical": Severity.ERROR}

_log = structlog.get_logger(__name__)


class RuleStep:
    """One instance serves all threads. Without ``web`` rules cannot make HTTP calls."""

    def __init__(self, cache: RuleCache | None = None, web: Web | None = None) -> None:
        self._rules = cache or RuleCache()
        self._web = web

    def current(self, tx: Transaction) -> RuleSet:
        """Return the rules as ``tx`` sees them."""
        return self._rules.current(tx)

    def apply(self, context: TaskContext, rules: RuleSet, inventory: Document, plugin_data: Document) -> None:
        """Run the rules on the task's copies and on ``plugin_data``; ``RuleFailedError``."""
        if not rules.rules:
            return
        rule_context = RuleContext(context, inventory, plugin_data, drivers=context.settings.drivers.enabled)
        applied = engine.run(rules, rule_context, context.settings.inspection_rules.mask_secrets)
        _check_bmc_address(context, engine.titles(applied[:5]))
        self._call(context, rule_context.calls)
        for logged in rule_context.logged:
            _log_message(context, logged)
        if rule_context.unmatched:
            _note_unmatched(context, rule_context.unmatched)
        if applied:
            _note(context, rules, applied)

    def _call(self, context: TaskContext, calls: list[ApiCall]) -> None:
        targets = context.settings.inspection_rules.api_call_targets
        for call in calls:
            if not all(allowed(url, targets) for url in (call.url, call.proxy) if url is not None):
                message = "is not allowed by [inspection_rules] api_call_targets"
                raise _failed(call, f"{_url(call)} {message}")
        if calls:
            context.intend("api-call")
        deadline = context.services.clock.monotonic() + _ALL_CALLS
        for call in calls:
            answer = self._call_with_retries(context, call, deadline)
            if not 200 <= answer < 400:
                raise _failed(call, f"{_url(call)} answered {answer}")
            if not call.sensitive:
                context.note("rules", f"the rule {call.rule} called {_url(call)}: {answer}")

    def _call_with_retries(self, context: TaskContext, call: ApiCall, deadline: float) -> int:
        """Return the HTTP status of the last try."""
        for number in range(call.retries + 1):
            if number:
                context.attempt.pause(call.backoff * 2 ** (number - 1))
            left = deadline - context.services.clock.monotonic()
            if left <= 0 or self._web is None:
                break
            context.attempt.confirm()
            last = number == call.retries
            try:
                status = self._web.get(
                    call.url, headers=call.headers, timeout=min(call.timeout, left), proxy=call.proxy
                )
            except WebError as exc:
                if last:
                    raise _failed(call, f"{_url(call)} did not answer: {exc}") from None
                continue
            if last or status not in _RETRIED_STATUS:
                return status
        raise _failed(call, f"{_url(call)} did not answer in the {_ALL_CALLS:.0f} s that all calls have together")


def _check_bmc_address(context: TaskContext, applied: str) -> None:
    """Refuse rules that would send stored secrets to a BMC address that the machine itself has reported.

    Secrets that rules set together with an address are sent there only after an operator's approval, or within
    ``[drivers] bmc_networks``.
    """
    changed, kept = bmc_access.exposed(context.before, context.node, ())
    if kept:
        message = f"changing {', '.join(changed)} would send the stored {', '.join(kept)} to the new address"
        raise RuleFailedError(applied, f"rules cannot be carried out ({applied}): {message}")
    if changed:
        bmc_access.confirm(context.node, by_operator=False)


def _url(call: ApiCall) -> str:
    """Return the URL of a call without its query, which may hold secrets."""
    return call.url.partition("?")[0]


def _failed(call: ApiCall, message: str) -> RuleFailedError:
    detail = "an API call failed" if call.sensitive else message
    return RuleFailedError(call.rule, f"the rule {call.rule} cannot be carried out: {detail}")


def _log_message(context: TaskContext, logged: Logged) -> None:
    getattr(_log, logged.level)(logged.message, rule=logged.rule, node=context.node.uuid)
    severity = _SEVERITIES.get(logged.level, Severity.INFO)
    context.note("rules", logged.message, severity=severity, detail={"rule": logged.rule})


def _note_unmatched(context: TaskContext, unmatched: list[Unmatched]) -> None:
    """Note the rules that no data could match: their field may be misspelled, or its hook disabled."""
    first = unmatched[:_MAX_UNMATCHED]
    shown = ", ".join(one.rule if one.field is None else f"{one.rule} ({one.field})" for one in first[:5])
    more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
    detail = {"missing": [msgspec.structs.asdict(one) for one in first]}
    context.note("rules", f"rules not applied, because the data has no such field: {shown}{more}", detail=detail)


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
        """Run the hooks, then the rules; a failure of either fails the inspection with its reason."""
        ident = context.request.inspection or ""
        parts, context.ports, rules = context.services.store.read(
            lambda tx: self._load(tx, ident, context.node.uuid), snapshot=False
        )
        if "inventory" not in parts:
            return Fail(Reason.DATA_MISSING, "no data is stored for this inspection")
        try:
            inventory = json_safety.decode_clean(parts["inventory"])
            unprocessed = json_safety.decode_clean(parts.get("unprocessed", b"{}"))
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
            if from_bmc is None and (report := out_of_band.kept(context, inventory, plugin_data)) is not None:
                plugin_data[out_of_band.KEY] = report
            source = Source.OUT_OF_BAND if out_of_band.is_all(inventory, from_bmc) else Source.IN_BAND
            context.node.sources = sourced(sourced_values(context.before), context.node, source)
            unruled = sourced_values(context.node)
            context.begins("", "the rules")
            with _notes_held_back(context):
                self._rules.apply(context, rules, inventory, plugin_data)
            context.node.sources = sourced(unruled, context.node, Source.RULE)
            context.parts["plugin_data"] = encode(plugin_data)
            found = context.update_search_index(inventory, plugin_data)
        except HookError as exc:
            return Fail(exc.reason, str(exc))
        except RuleFailedError as exc:
            return Fail(exc.reason, exc.message)
        deviation = context.compare_with_expectations(rules.expectations, found)
        if deviation is not None:
            return Fail(Reason.HARDWARE_DEVIATES, deviation)
        if (identity := context.request.payload.get("identity")) is not None:
            context.node.internal[machine_identity.IDENTITY] = identity
        context.note("processed", f"processed by the hooks {', '.join(self._pipeline.names)}")
        return Next(Event.FINISH, context.services.attached.recorded(context) | undo.recorded(context))

    def _load(self, tx: Transaction, inspection: str, node: str) -> tuple[dict[Part, bytes], list[Port], RuleSet]:
        """Read what hooks and rules work on, and the rules, in one round trip."""
        parts = tx.data.load_later(inspection, ("inventory", "unprocessed", "out_of_band"))
        ports = tx.ports.list_later(Query(filters={"node": node}))
        rules = self._rules.current(tx)
        return parts.get(), list(ports.get()), rules


@contextlib.contextmanager
def _notes_held_back(context: TaskContext) -> Iterator[None]:
    """Keep the hooks' notes back until the rules have succeeded; if a rule fails, only warnings and errors are kept."""
    held, context.journal.entries = context.journal.entries, []
    try:
        yield
    except RuleFailedError:
        held = [(when, entry) for when, entry in held if entry.severity is not Severity.INFO]
        raise
    finally:
        context.journal.entries = held + context.journal.entries
