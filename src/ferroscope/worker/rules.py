"""Inspection rules as a step of processing, with the HTTP calls that they ask for and what they note.

The calls are made before the commit, once per attempt, so they are repeated if a worker dies in between.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from ferroscope.contracts.remote import Web, WebError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, bmc_place
from ferroscope.core.model import Document, Node, Severity
from ferroscope.core.values import many
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.enrollment.shared_places import find_shared
from ferroscope.rules import engine
from ferroscope.rules.builtin import RuleCache, is_allowed
from ferroscope.rules.data import ApiCall, Logged, RuleContext, RuleFailedError, Unmatched
from ferroscope.rules.engine import CompiledRule, RuleSet
from ferroscope.worker.attempt import Attempt

_RETRIED_STATUS: Final = frozenset({429, 500, 502, 503, 504})
_ALL_CALLS: Final = 60.0  # seconds for the calls of one inspection, including retries and pauses
_MAX_UNMATCHED: Final = 50
_SEVERITIES: Final = {"warning": Severity.WARNING, "error": Severity.ERROR, "critical": Severity.ERROR}

_log = structlog.get_logger(__name__)


class HookRun:
    """What hooks and rules work on, as ``hooks.base.HookContext`` and ``rules.data.RuleTaskContext`` say."""

    def __init__(self, attempt: Attempt) -> None:
        self.node, self.ports, self.port_changes = attempt.node, attempt.ports, attempt.port_changes
        self.note, self.ports_elsewhere = attempt.journal.note, attempt.ports_elsewhere
        self.attempt = attempt

    def find_node_by_name(self, name: str) -> str | None:
        nodes = self.attempt.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
        return next((node.uuid for node in nodes if node.uuid != self.node.uuid), None)

    def previous_inventory(self) -> Document | None:
        return self.attempt.previous_data(("inventory",), "continuing without it").get("inventory")


class RuleStep:
    """One instance serves all threads. Without ``web`` rules cannot make HTTP calls."""

    def __init__(self, cache: RuleCache | None = None, web: Web | None = None) -> None:
        self._rules = cache or RuleCache()
        self._web = web

    def of(self, revision: int, store: Store) -> RuleSet:
        """Return the rules of this revision; if they have to be read, they may be newer."""
        return self._rules.get_cached(revision) or store.read(self._rules.current)

    def apply(self, run: HookRun, rules: RuleSet, inventory: Document, plugin_data: Document) -> None:
        """Run the rules on the task's copies and on ``plugin_data``; ``RuleFailedError``."""
        if not rules.rules:
            return
        attempt = run.attempt
        rule_context = RuleContext(run, inventory, plugin_data, drivers=attempt.settings.drivers.enabled)
        applied = engine.run(rules, rule_context, attempt.settings.inspection_rules.mask_secrets)
        _check_bmc_address(attempt, attempt.store, engine.titles(applied[:5]))
        self._call(attempt, rule_context.calls)
        for logged in rule_context.logged:
            _log_message(attempt, logged)
        if rule_context.unmatched:
            _note_missing(attempt, rule_context.unmatched)
        if applied:
            _note(attempt, rules, applied)

    def _call(self, attempt: Attempt, calls: list[ApiCall]) -> None:
        targets = attempt.settings.inspection_rules.api_call_targets
        for call in calls:
            if not all(is_allowed(url, targets) for url in (call.url, call.proxy) if url is not None):
                message = "is not allowed by [inspection_rules] api_call_targets"
                raise _rule_failure(call, f"{_url(call)} {message}")
        if calls:
            attempt.intend("api-call")
        deadline = attempt.clock.monotonic() + _ALL_CALLS
        for call in calls:
            answer = self._call_with_retries(attempt, call, deadline)
            if not 200 <= answer < 400:
                raise _rule_failure(call, f"{_url(call)} answered {answer}")
            if not call.sensitive:
                attempt.note("rules", f"the rule {call.rule} called {_url(call)}: {answer}")

    def _call_with_retries(self, attempt: Attempt, call: ApiCall, deadline: float) -> int:
        """Return the HTTP status of the last try."""
        for number in range(call.retries + 1):
            if number:
                attempt.pause(call.backoff * 2 ** (number - 1))
            left = deadline - attempt.clock.monotonic()
            if left <= 0 or self._web is None:
                break
            attempt.confirm()
            last = number == call.retries
            try:
                status = self._web.get(
                    call.url, headers=call.headers, timeout=min(call.timeout, left), proxy=call.proxy
                )
            except WebError as exc:
                if last:
                    raise _rule_failure(call, f"{_url(call)} did not answer: {exc}") from None
                continue
            if last or status not in _RETRIED_STATUS:
                return status
        raise _rule_failure(call, f"{_url(call)} did not answer in the {_ALL_CALLS:.0f} s that all calls have together")


def _check_bmc_address(attempt: Attempt, store: Store, applied: str) -> None:
    """Refuse rules that would send stored secrets to a BMC address that the machine itself has reported, or that would
    bring the node to the BMC of another one.

    Secrets that rules set together with an address are sent there only after an operator's approval, or within
    ``[drivers] bmc_networks``.
    """
    changed, kept = bmc_access.exposed_fields(attempt.before, attempt.node, ())
    if kept:
        message = f"changing {', '.join(changed)} would send the stored {', '.join(kept)} to the new address"
        raise RuleFailedError(applied, f"rules cannot be carried out ({applied}): {message}")
    before, after = attempt.before.driver_info, attempt.node.driver_info
    if why := bmc_place.refusal({name: value for name, value in after.items() if value != before.get(name)}):
        raise RuleFailedError(applied, f"rules cannot be carried out ({applied}): {why}")
    if before != after and (why := store.read(lambda tx: _shared_bmc(tx, attempt.before, attempt.node))):
        raise RuleFailedError(applied, f"rules cannot be carried out ({applied}): {why}")
    if changed:
        bmc_access.confirm(attempt.node, by_operator=False)


def _shared_bmc(tx: Transaction, before: Node, node: Node) -> str:
    """Return why the node must not be where it is now and was not before; "" if it may."""
    stored = tx.addresses.bmc_of(node.uuid)
    was = bmc_place.exclusive_places(before.driver_info, stored)
    is_moved = bmc_access.moved_fields(before.driver_info, node.driver_info)
    shared = find_shared(tx, node, () if is_moved else stored, was=was)
    return (
        ""
        if shared is None
        else bmc_place.shared_message(shared[0], f"is that of node {shared[1].name or shared[1].uuid}")
    )


def _url(call: ApiCall) -> str:
    """Return the URL of a call without its query, which may hold secrets."""
    return call.url.partition("?")[0]


def _rule_failure(call: ApiCall, message: str) -> RuleFailedError:
    detail = "an API call failed" if call.sensitive else message
    return RuleFailedError(call.rule, f"the rule {call.rule} cannot be carried out: {detail}")


def _log_message(attempt: Attempt, logged: Logged) -> None:
    getattr(_log, logged.level)(logged.message, rule=logged.rule, node=attempt.node.uuid)
    severity = _SEVERITIES.get(logged.level, Severity.INFO)
    attempt.note("rules", logged.message, severity=severity, detail={"rule": logged.rule})


def _note_missing(attempt: Attempt, unmatched: list[Unmatched]) -> None:
    """Note the rules that no data could match: their field may be misspelled, or its hook disabled."""
    first = unmatched[:_MAX_UNMATCHED]
    shown = ", ".join(
        reference.rule if reference.field is None else f"{reference.rule} ({reference.field})"
        for reference in first[:5]
    )
    more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
    detail = {"missing": [msgspec.structs.asdict(reference) for reference in first]}
    attempt.note("rules", f"rules not applied, because the data has no such field: {shown}{more}", detail=detail)


def _note(attempt: Attempt, rules: RuleSet, applied: list[CompiledRule]) -> None:
    detail = {"applied": [rule.rule.uuid for rule in applied]}
    shown = engine.titles(applied[:5])
    more = f" and {len(applied) - 5} more" if len(applied) > 5 else ""
    attempt.note("rules", f"{len(applied)} of {many(len(rules.rules), 'rule')} applied: {shown}{more}", detail=detail)
