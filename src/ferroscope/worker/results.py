"""What an attempt leaves behind: its journal, and what the transaction that ends it writes.

What the results replace is recorded in the payload of the request to ``finish``, in the same transaction: a different
callback may arrive while the machine is powered off, and then the results are taken back.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope import transition
from ferroscope.contracts.store import Clock, Query
from ferroscope.core import bmc_access, model
from ferroscope.core.delivery import Done, Drop, Fail, Next, Outcome, Retry, Run, advance, is_stale
from ferroscope.core.model import Claim, Document, Entry, Inspection, Node, Port, Request, Severity
from ferroscope.core.node_changes import merged_fields, three_way
from ferroscope.core.notification import EventType
from ferroscope.core.states import COMMANDS, Event, Transition
from ferroscope.db import Transaction
from ferroscope.hardware import expectations
from ferroscope_client.core.node import STORED
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import MACHINE, Provision, State

if TYPE_CHECKING:
    from ferroscope.worker.attempt import Attempt

# While one of these is carried out, the clock of the inspection's phase is running.
CLOCKED: Final = frozenset({Event.INSPECT, Event.CONTINUE})
# Changes of the hardware that the timeline spells out.
_MAX_TEXTS: Final = 3
# Causes of an uncounted retry that people can end: the timeline shows them.
_SHOWN_CAUSES: Final = frozenset({Reason.STORE_UNAVAILABLE, Reason.ENCRYPTION_KEY_MISSING, Reason.BMC_BUSY})


class AttemptJournal:
    """Timeline entries of an attempt, and what becomes known on its way.

    ``entries`` has the time of the monotonic clock at which each was noted. In the database each gets the
    transaction's time minus its age when ``begin_writing`` was called, so that a slow transaction moves nothing.

    Written along with them: ``bmc_addresses`` (None: unchanged), ``secret_delivery`` (how the machine gets its secret;
    None: unchanged) and ``forgotten`` (a key of the node's internal data to delete; None: none).
    """

    def __init__(self, clock: Clock, process: str, node: Node, request: Request) -> None:
        self.entries: list[tuple[float, Entry]] = []
        self.bmc_addresses: frozenset[str] | None = None
        self.secret_delivery: str | None = None
        self.forgotten: str | None = None
        self._clock = clock
        self._process = process
        self._node = node.uuid
        self._inspection = node.inspection
        self._is_command = request.event in COMMANDS  # which belongs to no inspection
        self._began_at: float | None = None
        self._number_before = 0

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        entry = Entry(
            node=self._node,
            inspection=None if self._is_command else self._inspection,
            step=name,
            message=message,
            process=self._process,
            severity=severity,
            reason=reason,
            detail=detail or {},
        )
        self.entries.append((self._clock.monotonic(), entry))

    def begin_writing(self) -> None:
        """The following transaction begins now, however often it is repeated."""
        self._began_at, self._number_before = self._clock.monotonic(), len(self.entries)

    def rewind(self) -> None:
        """Forget what an earlier run of the transaction has noted."""
        del self.entries[self._number_before :]

    def write(self, tx: Transaction) -> None:
        """Write what has not been written yet."""
        if self.secret_delivery is not None and self._inspection is not None:
            tx.inspections.update(self._inspection, secret_delivery=self.secret_delivery)
        if self.forgotten is not None:
            node = tx.nodes.get(self._node, lock=True)
            internal = {key: value for key, value in node.internal.items() if key != self.forgotten}
            tx.nodes.update(msgspec.structs.replace(node, internal=internal))
        if self.bmc_addresses is not None:
            tx.addresses.set_bmc(self._node, self.bmc_addresses)
        began = self._began_at if self._began_at is not None else self._clock.monotonic()
        ages = ((max(0.0, began - noted), entry) for noted, entry in self.entries)
        tx.journal.append(msgspec.structs.replace(entry, at=tx.now - age) for age, entry in ages)

    def clear(self) -> None:
        """Forget what has been written."""
        self.entries, self._began_at = [], None
        self.bmc_addresses = self.secret_delivery = self.forgotten = None


def following_request(attempt: Attempt, outcome: Outcome, with_task: Container[Event]) -> Request | None:
    """Return the request that follows from an outcome, if any.

    A failed callback leaves the machine powered on, even if its workers all died before they saved the state: a request
    to ``fail`` powers it off in the lane that waits for BMCs.
    """
    if isinstance(outcome, Next) and outcome.event in with_task:
        return transition.request_for(attempt.before, outcome.event, outcome.payload)
    is_callback = attempt.request.event is Event.CONTINUE and attempt.before.state in MACHINE
    if isinstance(outcome, Fail) and is_callback:
        payload = {"reason": str(outcome.reason), "message": outcome.message}
        return transition.request_for(attempt.before, Event.FAIL, payload)
    return None


def find_reason_to_drop(
    node: Node, request: Request, outcome: Outcome, follows: Request | None, pending: Sequence[Request]
) -> Drop | None:
    """Return why the outcome no longer counts, after what arrived while the task ran; None if it does."""
    if is_stale(node, request):
        # Another inspection was started meanwhile: this one has ended, and must not end that one.
        return Drop(Reason.STALE_REQUEST, "the inspection was replaced meanwhile")
    others = [queued for queued in pending if queued.id != request.id]
    waiting = {queued.event for queued in others if queued.inspection == request.inspection}
    if follows and request.event in (Event.CONTINUE, Event.REAPPLY) and Event.ABORT in waiting:
        return Drop(Reason.ABORTED, "an abort was requested meanwhile; the results are discarded")
    failed = isinstance(outcome, Drop) or (isinstance(outcome, Fail) and follows is not None)
    if not failed and request.event in (Event.CONTINUE, Event.FINISH) and Event.CONTINUE in waiting:
        # The request of the other callback ends the inspection.
        return Drop(Reason.CONFLICTING_CALLBACK, "a different callback arrived meanwhile; the results are discarded")
    return None


def put_following(
    tx: Transaction, claim: Claim, request: Request, pending: Sequence[Request], *, keep: bool
) -> Claim | None:
    """Put the following request on the queue instead of the present one; return its claim if this worker keeps it.

    It is kept if there is a place for it (``keep``) and no other request waits for the node. A ``fail`` always takes
    the place of the present request: nothing that waits may come in between. The inspection's clock stops here: its
    end is decided, or it waits for us.
    """
    if request.inspection is not None:
        tx.inspections.update(request.inspection, clock_since=None)
    failing = request.event is Event.FAIL
    if keep and (failing or len(pending) == 1):
        return tx.requests.put(request, instead_of=claim)
    if failing and (new := tx.requests.put(request, instead_of=claim)) is not None:
        tx.requests.retry(new, 0.0, counted=False)
        return None
    tx.requests.consume(claim)
    tx.requests.put(request)
    return None


def put_back(tx: Transaction, attempt: Attempt, outcome: Retry) -> None:
    """Leave the request on the queue for later and release the node."""
    request = attempt.request
    tx.requests.retry(attempt.claim, outcome.after, counted=outcome.counted)
    if request.event in CLOCKED and request.inspection is not None:
        tx.inspections.update(request.inspection, clock_since=None)
    if outcome.counted or outcome.reason in _SHOWN_CAUSES:
        detail = {"after": outcome.after}
        attempt.warn("retry", outcome.message, reason=outcome.reason, detail=detail)
    attempt.journal.write(tx)


def is_end(event: Event, outcome: Outcome) -> bool:
    """Whether the outcome ends an inspection or a command; a start and a dropped request only move on."""
    return isinstance(outcome, Fail) or (isinstance(outcome, Done) and event is not Event.INSPECT)


def write_outcome(
    tx: Transaction,
    attempt: Attempt,
    outcome: Done | Next | Fail | Drop,
    with_task: Container[Event],
    present: tuple[Node, Inspection | None],
) -> Node:
    """Write what ``outcome`` means; return the node as it is stored then.

    ``with_task`` are the events that have a task; any other event that follows only moves the state, here and now.
    ``present`` is the node as it is now, locked, and its inspection. ``ConflictError`` if another node has taken a
    port's MAC or the node's name meanwhile.
    """
    node, inspection = present
    if isinstance(outcome, Drop):
        attempt.warn("dropped", outcome.message, reason=outcome.reason)
        return _commit_drop(tx, attempt, node)
    if isinstance(outcome, Fail):
        return _commit_failure(tx, attempt, node, inspection, outcome)
    if attempt.request.event is Event.DELETE:
        transition.remove_node(tx, node)
        attempt.journal.entries.clear()  # the node's timeline was deleted with it
        return node
    had_rows = node.search_digest is not None
    # An operator may have changed the node while the task worked on its copy: only what the task changed is written.
    node = three_way(attempt.before, attempt.node, node)
    if bmc_access.moved_fields(present[0].driver_info, node.driver_info):  # by rules or hooks
        tx.addresses.set_bmc(node.uuid, bmc_access.literal_addresses(node.driver_info))
    changes = attempt.port_changes
    if changes.removed:
        tx.ports.remove(changes.removed)
    if changes.added:
        tx.ports.add(changes.added)
    for port in changes.updated.values():
        tx.ports.update(port)
    if attempt.parts and node.inspection:
        tx.data.save(node.inspection, node.uuid, attempt.parts)
    if attempt.index_rows is not None:
        tx.search_index.replace(node.uuid, attempt.index_rows, had=had_rows)
    if attempt.hardware_changes:
        tx.outbox.add(EventType.HARDWARE_CHANGED, node, inspection, attempt.hardware_changes)
        tx.hardware_changes.extend(attempt.hardware_changes)
        _note_changes(tx, attempt)
    moves = [move for move in _moves(attempt, outcome, with_task) if move.target is not node.state]
    for move in moves:
        node = transition.apply(tx, node, move, inspection)
        attempt.note(str(node.state), f"the inspection is {node.state}")
    if attempt.request.event in COMMANDS and node.state is not State.ERROR:
        node = msgspec.structs.replace(node, last_error=None)  # as in Ironic: what failed before works now
    if attempt.request.event is Event.VERIFY and node.provision_state is Provision.VERIFYING:
        return transition.rest(tx, node, Provision.MANAGEABLE)
    return node if moves else tx.nodes.update(node)


def _note_changes(tx: Transaction, attempt: Attempt) -> None:
    """Record on the inspection how many changes of the hardware it has found, and in its timeline which."""
    texts = [change.text for change in attempt.hardware_changes]
    more = f"; {len(texts) - _MAX_TEXTS} more" if len(texts) > _MAX_TEXTS else ""
    attempt.note(model.HARDWARE_CHANGED, "; ".join(texts[:_MAX_TEXTS]) + more)
    if attempt.request.inspection is not None:
        tx.inspections.update(attempt.request.inspection, changes=len(texts))


def _commit_drop(tx: Transaction, attempt: Attempt, node: Node) -> Node:
    """Clear the target power state that a dropped command had promised, unless another command is pending."""
    if attempt.request.event is not Event.SET_POWER or node.target_power_state is None:
        return node
    if any(queued.event is Event.SET_POWER for queued in tx.requests.pending(node.uuid)):
        return node
    return tx.nodes.update(msgspec.structs.replace(node, target_power_state=None))


def _moves(attempt: Attempt, outcome: Done | Next, with_task: Container[Event]) -> list[Transition]:
    # A command does not change the state: an inspection may have started while it ran.
    decision = attempt.decision
    if not isinstance(decision, Run) or attempt.request.event in COMMANDS:
        return []
    moves = [decision.transition]
    if isinstance(outcome, Next) and outcome.event not in with_task:
        moves.append(advance(decision.transition.target, outcome.event))
    return moves


def _commit_failure(
    tx: Transaction, attempt: Attempt, node: Node, inspection: Inspection | None, outcome: Fail
) -> Node:
    """Move the node to its error state; of what the task changed, only what it observed is kept."""
    node = msgspec.structs.replace(node, power_state=attempt.node.power_state)
    node = with_deviations(attempt, node)
    attempt.note("failed", outcome.message, severity=Severity.ERROR, reason=outcome.reason)
    if attempt.request.event is Event.SET_PASSWORD:
        # What the task has proven: which password the BMC accepts.
        proven = three_way(attempt.before, attempt.node, node)
        node = msgspec.structs.replace(node, driver_info=proven.driver_info, internal=proven.internal)
    if attempt.request.event in COMMANDS:
        return transition.fail_command(tx, node, outcome)
    decision = attempt.decision
    if isinstance(decision, Run) and decision.transition.target is State.ERROR:
        return transition.apply(tx, node, decision.transition, inspection, failure=outcome)
    return transition.fail(tx, node, outcome, inspection)


def with_deviations(attempt: Attempt, node: Node) -> Node:
    """Return the node with the deviations that the task has found; the same object if they have not changed."""
    return node if attempt.deviations is None else expectations.with_deviations(node, attempt.deviations) or node


_REPLACED: Final = "undo"
# The digest of search data that was deleted: the next inspection, or a rebuild, writes it anew.
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


def restore_node(tx: Transaction, payload: Document, node: Node) -> Node:
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
