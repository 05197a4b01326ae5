"""Process what the ramdisk sent, or stored data again: run hooks and rules on copies.

Their changes, the plugin data and the new state are committed together by the loop, so a worker that is killed in here
leaves nothing behind, and the request simply runs again. No BMC is called here, since the compute lane never waits for
one: after a failure the loop puts a request to ``fail`` on the queue, which powers the machine off.

What the results replace is recorded in the payload of the request to ``finish``, in the same transaction: a different
callback may arrive while the machine is powered off, and then the results are taken back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from ferroscope.contracts.data import Later, Part, packed
from ferroscope.contracts.store import Query
from ferroscope.core import json_safety
from ferroscope.core.delivery import Fail, Next, Outcome
from ferroscope.core.model import Document, Node, Port, Request, Severity
from ferroscope.core.node import STORED, ValueSource, merged_fields, sourced_values, three_way, update_sources
from ferroscope.core.notification import ChangeView
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import diff, expectations, machine_identity, search_index
from ferroscope.hardware.expectations import CompiledExpectation
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.rules.data import RuleFailedError
from ferroscope.worker import out_of_band
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.rules import HookRun, RuleStep
from ferroscope.worker.run import ReadsAhead
from ferroscope.worker.services import Services


class ProcessTask(ReadsAhead):
    """The task of ``continue`` and ``reapply``."""

    def __init__(self, pipeline: Pipeline, rules: RuleStep) -> None:
        self._pipeline = pipeline
        self._rules = rules

    def __call__(self, attempt: Attempt, journal: Journal, services: Services) -> Outcome:
        """Run the hooks, then the rules; a failure of either fails the inspection with its reason."""
        parts, attempt.ports, revision = (
            services.store.read(lambda tx: self.ahead(tx, attempt.request).get(), snapshot=False)
            if attempt.read is None
            else attempt.read.get()
        )
        rules = self._rules.of(revision, services.store)
        if "inventory" not in parts:
            return Fail(Reason.DATA_MISSING, "no data is stored for this inspection")
        try:
            inventory = json_safety.decode_clean(parts["inventory"])
            unprocessed = json_safety.decode_clean(parts.get("unprocessed", b"{}"))
        except json_safety.JsonTooLargeError as exc:
            return Fail(Reason.DATA_TOO_LARGE, f"the inspection data is not processed: {exc}")
        from_bmc = out_of_band.stored_document(parts)
        if from_bmc is not None:
            unprocessed |= {
                out_of_band.KEY: from_bmc,
                out_of_band.HARDWARE: out_of_band.beside(inventory, from_bmc),
            }
        try:
            run = HookRun(attempt, journal, services)
            plugin_data = self._pipeline.run(run, inventory, unprocessed, owned=True, begins=attempt.begins)
            if from_bmc is None:
                plugin_data |= out_of_band.keep_health(attempt, journal, inventory, plugin_data)
            source = ValueSource.OUT_OF_BAND if out_of_band.is_all(inventory, from_bmc) else ValueSource.IN_BAND
            attempt.node.sources = update_sources(sourced_values(attempt.before), attempt.node, source)
            unruled = sourced_values(attempt.node)
            attempt.begins("", "the rules")
            with _notes_held_back(journal):
                self._rules.apply(run, rules, inventory, plugin_data)
            attempt.node.sources = update_sources(unruled, attempt.node, ValueSource.RULE)
            attempt.parts |= packed({"plugin_data": encode(plugin_data)})
            index_rows = _update_search_index(attempt, journal, inventory, plugin_data)
        except HookError as exc:
            return Fail(exc.reason, str(exc))
        except RuleFailedError as exc:
            return Fail(exc.reason, exc.message)
        deviation = _compare_with_expectations(attempt, journal, rules.expectations, index_rows)
        if deviation is not None:
            return Fail(Reason.HARDWARE_DEVIATES, deviation)
        if (identity := attempt.request.payload.get("identity")) is not None:
            attempt.node.internal[machine_identity.IDENTITY] = identity
        journal.note("processed", f"processed by the hooks {', '.join(self._pipeline.names)}")
        return Next(Event.FINISH, services.attached.recorded(attempt) | replaced_values(attempt))

    def ahead(self, tx: Transaction, request: Request) -> Later[tuple[dict[Part, bytes], list[Port], int]]:
        """Ask for what hooks and rules work on, and for the revision of the rules."""
        parts = tx.data.load_later(request.inspection or "", ("inventory", "unprocessed", "out_of_band"))
        ports = tx.ports.list_later(Query(filters={"node": request.node}))
        revision = tx.rules.revision_later()
        return Later(lambda: (parts.get(), list(ports.get()), revision.get()))


@contextlib.contextmanager
def _notes_held_back(journal: Journal) -> Iterator[None]:
    """Keep the hooks' notes back until the rules have succeeded; if a rule fails, only warnings and errors are kept."""
    held, journal.entries = journal.entries, []
    try:
        yield
    except RuleFailedError:
        held = [(when, entry) for when, entry in held if entry.severity is not Severity.INFO]
        raise
    finally:
        journal.entries = held + journal.entries


def _update_search_index(
    attempt: Attempt, journal: Journal, inventory: Document, plugin_data: Document
) -> list[search_index.IndexRow]:
    """Return the rows of the search index for the results; nothing is written if they have not changed."""
    learned = search_index.learn(inventory, plugin_data)
    attempt.node.hardware = learned.summary
    if learned.digest != attempt.node.search_digest:
        attempt.node.search_digest, attempt.index_rows = learned.digest, learned.rows
        if attempt.before.search_digest is not None:
            parts = attempt.previous_data(journal, ("inventory", "plugin_data"), "so changes cannot be determined")
            if parts:
                changes = diff.compare((parts["inventory"], parts["plugin_data"]), (inventory, plugin_data))
                attempt.hardware_changes = [ChangeView(**msgspec.structs.asdict(change)) for change in changes]
    return learned.rows


def _compare_with_expectations(
    attempt: Attempt, journal: Journal, expected: Sequence[CompiledExpectation], rows: list[search_index.IndexRow]
) -> str | None:
    """Note how the hardware deviates from what is expected; return why the inspection fails, if it does."""
    if not expected and expectations.KEY not in attempt.node.attributes:  # nothing is, and nothing was
        attempt.deviations = []
        return None
    attempt.deviations = msgspec.to_builtins(expectations.deviations(expected, rows, attempt.node))
    message, severity, reason = expectations.timeline_entry(attempt.deviations)
    changed = expectations.with_deviations(attempt.node, attempt.deviations)
    if changed is not None:
        attempt.node = changed
    fails = any(deviation["severity"] == "failure" for deviation in attempt.deviations)
    if not fails and (attempt.deviations or changed is not None):
        journal.note("expectations", message, severity=severity, reason=reason)
    return message if fails else None


_REPLACED: Final = "undo"
# The digest of search data that is not there any more: the next inspection, or a rebuild, writes it anew.
_FORGOTTEN: Final = ""
# What a rule has set is not encrypted before it is stored, so it is not recorded.
_WITH_SECRETS: Final = frozenset(field.name for field in STORED if field.encrypted)
_PORT_FIELDS: Final = tuple(name for name in Port.__struct_fields__ if name not in ("uuid", "node", "updated_at"))


def replaced_values(attempt: Attempt) -> Document:
    """Return what the results replace, as a part of the payload of the request that follows."""
    before, after = attempt.before, attempt.node
    fields = [name for name in merged_fields() if getattr(before, name) != getattr(after, name)]
    shown = [name for name in fields if name not in _WITH_SECRETS]
    edits, present = attempt.port_changes, {port.uuid: port for port in attempt.ports}
    record = {
        "before": {name: getattr(before, name) for name in fields},
        "after": {name: getattr(after, name) for name in shown},
        "added": [port.uuid for port in edits.added],
        "updated": [_difference(present[uuid], port) for uuid, port in edits.updated.items() if uuid in present],
        "removed": [present[uuid] for uuid in edits.removed if uuid in present],
    }
    return {_REPLACED: msgspec.to_builtins(record)}


def restore(tx: Transaction, payload: Document, node: Node) -> Node:
    """Undo the results; return the node as it is stored then. What others have changed meanwhile is kept."""
    record = payload.get(_REPLACED)
    if not record:
        return node
    identity = {"uuid": node.uuid, "driver": node.driver}
    before = msgspec.convert(identity | record["before"], Node)
    after = msgspec.convert(identity | record["after"], Node)
    restored = three_way(after, before, node)
    for name in _WITH_SECRETS & record["before"].keys():
        setattr(restored, name, getattr(before, name))
    if node.search_digest is not None:
        tx.search_index.replace(node.uuid, [], had=True)
        restored.search_digest = None if record["before"].get("search_digest", "") is None else _FORGOTTEN
    if record["added"]:
        tx.ports.remove(record["added"])
    present = {port.uuid: port for port in tx.ports.list(Query(filters={"node": node.uuid}))}
    for change in record["updated"]:
        if (port := present.get(change["uuid"])) is not None:
            tx.ports.update(msgspec.structs.replace(port, **change["before"]))
    tx.ports.add([msgspec.convert(port, Port) for port in record["removed"]])
    return tx.nodes.update(restored)


def _difference(before: Port, after: Port) -> dict[str, Any]:
    names = [name for name in _PORT_FIELDS if getattr(before, name) != getattr(after, name)]
    return {"uuid": before.uuid, "before": {name: getattr(before, name) for name in names}}
