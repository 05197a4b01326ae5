"""Process what the ramdisk sent, or stored data again: run hooks and rules on copies.

The loop commits their changes, the plugin data and the new state together, so a worker that is killed in here leaves
nothing behind, and the request runs again. No hook or rule calls a BMC, since the compute lane never waits for one:
after a failure the loop puts a request to ``fail`` on the queue, which powers the machine off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.remote import Web, WebError
from ferroscope.contracts.store import Later, Query, packed
from ferroscope.core import bmc_access
from ferroscope.core.delivery import Done, Fail, Next, Outcome
from ferroscope.core.model import Document, Node, Request, Severity
from ferroscope.core.node_changes import ValueSource, sourced_values, update_sources
from ferroscope.core.notification import ChangeView
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.hardware import diff, expectations, machine_identity, search_index
from ferroscope.hardware.expectations import CompiledExpectation
from ferroscope.hardware.sources import combine
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.rules import engine
from ferroscope.rules.builtin import RuleCache, is_allowed
from ferroscope.rules.data import ApiCall, Logged, RuleContext, RuleFailedError, Unmatched
from ferroscope.rules.engine import CompiledRule, RuleSet
from ferroscope.shared_places import find_shared
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.machine import power_off_quietly
from ferroscope.worker.results import replaced_values
from ferroscope.worker.services import ReadsAhead, StoredData
from ferroscope_client.core import bmc_place, json_safety
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.core.values import many
from ferroscope_client.hardware.readings import mapping, mappings, text

# A key of an inspection's plugin data.
_OUT_OF_BAND: Final = "out_of_band"

_log = structlog.get_logger(__name__)


class ProcessTask(ReadsAhead):
    """The task of ``continue`` and ``reapply``."""

    def __init__(self, pipeline: Pipeline, rules: RuleStep) -> None:
        self._pipeline = pipeline
        self._rules = rules

    def __call__(self, attempt: Attempt) -> Outcome:
        """Run the hooks, then the rules; a failure of either fails the inspection with its reason."""
        parts, attempt.ports, revision = (
            attempt.store.read(lambda tx: self.ahead(tx, attempt.request).get(), snapshot=False)
            if attempt.read is None
            else attempt.read.get()
        )
        latest = self._rules.cache.latest
        rules = latest if latest.revision == revision else attempt.store.read(self._rules.cache.current)
        if "inventory" not in parts:
            return Fail(Reason.DATA_MISSING, "no data is stored for this inspection")
        try:
            inventory = json_safety.decode_clean(parts["inventory"])
            unprocessed = json_safety.decode_clean(parts.get("unprocessed", b"{}"))
        except json_safety.JsonTooLargeError as exc:
            return Fail(Reason.DATA_TOO_LARGE, f"the inspection data is not processed: {exc}")
        from_bmc = json_safety.decode(parts["out_of_band"]) if parts.get("out_of_band") else None
        is_from_bmc = from_bmc is not None and inventory == from_bmc["inventory"]  # no ramdisk was involved
        if from_bmc is not None:
            hardware = combine({} if is_from_bmc else inventory, from_bmc["inventory"], str(from_bmc["source"]))
            unprocessed |= {_OUT_OF_BAND: from_bmc, "hardware": msgspec.to_builtins(hardware)}
        try:
            plugin_data = self._pipeline.run(attempt, inventory, unprocessed, owned=True, begins=attempt.begins)
            if from_bmc is None:
                plugin_data |= _earlier_health(attempt, inventory, plugin_data)
            source = ValueSource.OUT_OF_BAND if is_from_bmc else ValueSource.IN_BAND
            attempt.node.sources = update_sources(sourced_values(attempt.before), attempt.node, source)
            unruled = sourced_values(attempt.node)
            attempt.begins("", "the rules")
            if rules.rules:
                with _notes_held_back(attempt):
                    self._rules.apply(attempt, rules, inventory, plugin_data)
            attempt.node.sources = update_sources(unruled, attempt.node, ValueSource.RULE)
            attempt.parts |= packed({"plugin_data": encode(plugin_data)})
            index_rows = _update_search_index(attempt, inventory, plugin_data)
        except HookError as exc:
            return Fail(exc.reason, str(exc))
        except RuleFailedError as exc:
            return Fail(exc.reason, exc.message)
        deviation = _compare_with_expectations(attempt, rules.expectations, index_rows)
        if deviation is not None:
            return Fail(Reason.HARDWARE_DEVIATES, deviation)
        if (identity := attempt.request.payload.get("identity")) is not None:
            attempt.node.internal[machine_identity.IDENTITY] = identity
        attempt.note("processed", f"processed by the hooks {', '.join(self._pipeline.names)}")
        return Next(Event.FINISH, replaced_values(attempt))

    def ahead(self, tx: Transaction, request: Request) -> Later[StoredData]:
        """Ask for what hooks and rules work on, and for the revision of the rules."""
        parts = tx.data.load_later(request.inspection or "", ("inventory", "unprocessed", "out_of_band"))
        ports = tx.ports.list_later(Query(filters={"node": request.node}))
        revision = tx.rules.revision_later()
        return Later(lambda: (parts.get(), list(ports.get()), revision.get()))


@contextlib.contextmanager
def _notes_held_back(attempt: Attempt) -> Iterator[None]:
    """Keep the hooks' notes back until the rules have succeeded; if a rule fails, only warnings and errors are kept."""
    held, attempt.journal.entries = attempt.journal.entries, []
    try:
        yield
    except RuleFailedError:
        held = [(when, entry) for when, entry in held if entry.severity is not Severity.INFO]
        raise
    finally:
        attempt.journal.entries = held + attempt.journal.entries


def _update_search_index(attempt: Attempt, inventory: Document, plugin_data: Document) -> list[search_index.IndexRow]:
    """Return the rows of the search index for the results; nothing is written if they have not changed."""
    learned = search_index.learn(inventory, plugin_data)
    attempt.node.hardware = learned.summary
    if learned.digest != attempt.node.search_digest:
        attempt.node.search_digest, attempt.index_rows = learned.digest, learned.rows
        if attempt.before.search_digest is not None:
            parts = attempt.previous_data(("inventory", "plugin_data"), "so changes cannot be determined")
            if parts:
                changes = diff.compare((parts["inventory"], parts["plugin_data"]), (inventory, plugin_data))
                attempt.hardware_changes = [ChangeView(**msgspec.structs.asdict(change)) for change in changes]
    return learned.rows


def _compare_with_expectations(
    attempt: Attempt, expected: Sequence[CompiledExpectation], rows: list[search_index.IndexRow]
) -> str | None:
    """Note how the hardware deviates from what is expected; return why the inspection fails, if it does."""
    if not expected and expectations.KEY not in attempt.node.attributes:  # nothing is expected, and nothing was
        attempt.deviations = []
        return None
    attempt.deviations = msgspec.to_builtins(expectations.deviations(expected, rows, attempt.node))
    message, severity, reason = expectations.timeline_entry(attempt.deviations)
    changed = expectations.with_deviations(attempt.node, attempt.deviations)
    if changed is not None:
        attempt.node = changed
    fails = any(deviation["severity"] == "failure" for deviation in attempt.deviations)
    if not fails and (attempt.deviations or changed is not None):
        attempt.note("expectations", message, severity=severity, reason=reason)
    return message if fails else None


def finish(attempt: Attempt) -> Outcome:
    """Power off after an inspection, not after stored data was processed. A BMC that fails does not fail it."""
    if attempt.before.state is State.PROCESSING:
        power_off_quietly(attempt)
    return Done()


def _earlier_health(attempt: Attempt, inventory: Document, plugin_data: Document) -> Document:
    """Return the health and firmware that an earlier inspection has read, for one in which no BMC was asked.

    As plugin data; empty if nothing is known of this machine. The ramdisk's data of firmware is newer.
    """
    hardware = attempt.before.hardware
    components = {part.get("component") for part in hardware.get("components", ())}
    if "health" not in hardware and "bmc" not in components:
        return {}
    earlier = attempt.previous_data(("inventory", "plugin_data"), "so the reported health is lost")
    bmc_data = mapping(earlier.get("plugin_data", {}).get(_OUT_OF_BAND))
    if not bmc_data or len({_serial(earlier["inventory"]), _serial(inventory)} - {None}) > 1:
        return {}  # the node has another machine now
    extra = mapping(plugin_data.get("extra"))
    newer = {component for component, table in (("nic", "network"), ("disk", "disk")) if extra.get(table)}
    parts = mappings(mapping(bmc_data.get("inventory")).get("firmware"))
    firmware = [part for part in parts if part.get("component") not in newer]
    report = {name: bmc_data[name] for name in ("source", "read_at", "health") if name in bmc_data}
    return {_OUT_OF_BAND: report | {"kept": True, "inventory": {"firmware": firmware} if firmware else {}}}


def _serial(inventory: Document) -> str | None:
    return text(mapping(inventory.get("system_vendor")).get("serial_number"))


# Inspection rules. The HTTP calls that they ask for are made before the commit, once per attempt, so they are repeated
# if a worker dies in between.

_RETRIED_STATUS: Final = frozenset({429, 500, 502, 503, 504})
# For all calls of one inspection, including retries and pauses.
_ALL_CALLS_SECONDS: Final = 60.0
_MAX_UNMATCHED: Final = 50
_SEVERITIES: Final = {"warning": Severity.WARNING, "error": Severity.ERROR, "critical": Severity.ERROR}


class RuleStep:
    """One instance serves all threads. Without ``web`` rules cannot make HTTP calls."""

    def __init__(self, cache: RuleCache | None = None, web: Web | None = None) -> None:
        self.cache = cache or RuleCache()
        self._web = web

    def apply(self, attempt: Attempt, rules: RuleSet, inventory: Document, plugin_data: Document) -> None:
        """Run the rules on the task's copies and on ``plugin_data``; ``RuleFailedError``."""
        rule_context = RuleContext(attempt, inventory, plugin_data, drivers=attempt.settings.drivers.enabled)
        applied = engine.run(rules, rule_context, attempt.settings.inspection_rules.mask_secrets)
        _check_bmc_address(attempt, engine.titles(applied[:5]))
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
                raise _rule_failure(call, f"{_url(call)} is not allowed by [inspection_rules] api_call_targets")
        if calls:
            attempt.intend("api-call")
        deadline = attempt.clock.monotonic() + _ALL_CALLS_SECONDS
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
                timeout = min(call.timeout, left)
                status = self._web.get(call.url, headers=call.headers, timeout=timeout, proxy=call.proxy)
            except WebError as exc:
                if last:
                    raise _rule_failure(call, f"{_url(call)} did not answer: {exc}") from None
                continue
            if last or status not in _RETRIED_STATUS:
                return status
        message = f"did not answer in the {_ALL_CALLS_SECONDS:.0f} s that all calls have together"
        raise _rule_failure(call, f"{_url(call)} {message}")


def _check_bmc_address(attempt: Attempt, applied: str) -> None:
    """Refuse rules that would send stored secrets to an address that the machine itself has reported.

    Nor may rules give the node the BMC of another one.

    Secrets that rules set together with an address are sent there only after an operator's approval, or within
    ``[drivers] bmc_networks``.
    """
    changed, kept = bmc_access.exposed_fields(attempt.before, attempt.node, ())
    before, after = attempt.before.driver_info, attempt.node.driver_info
    if kept:
        why = f"changing {', '.join(changed)} would send the stored {', '.join(kept)} to the new address"
    else:
        why = bmc_place.refusal({name: value for name, value in after.items() if value != before.get(name)})
    if not why and before != after:
        why = attempt.store.read(lambda tx: _shared_bmc(tx, attempt.before, attempt.node))
    if why:
        raise RuleFailedError(applied, f"rules cannot be carried out ({applied}): {why}")
    if changed:
        bmc_access.confirm(attempt.node, by_operator=False)


def _shared_bmc(tx: Transaction, before: Node, node: Node) -> str:
    """Return why the node must not be where it is now and was not before; "" if it may."""
    stored = tx.addresses.bmc_of(node.uuid)
    was = bmc_place.exclusive_places(before.driver_info, stored)
    is_moved = bmc_access.moved_fields(before.driver_info, node.driver_info)
    shared = find_shared(tx, node, () if is_moved else stored, was=was)
    if shared is None:
        return ""
    return bmc_place.shared_message(shared[0], f"is that of node {shared[1].name or shared[1].uuid}")


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
