"""Expected hardware: the expectations, and checking the stored hardware of nodes against them.

Workers check after each inspection. Deviations are a field of the node; ``GET /v1/nodes?deviating=true`` is the report.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import paging
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Uuid
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.hardware import expectations
from ferroscope.hardware.expectations import ExpectationError
from ferroscope_client.core.expectation import Expectation
from ferroscope_client.hardware.search_fields import KINDS

# Nodes that one call checks: their rows are read and their nodes locked in one transaction.
_PAGE_NODES: Final = 50


class ExpectationRoutes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All expectations, in their order."""

    expectations: list[Expectation]


class CheckQuery(msgspec.Struct, frozen=True):
    """Query of POST /v1/expectations/check; ``marker``: the last node that was checked."""

    marker: Uuid | None = None


class Checked(msgspec.Struct, frozen=True):
    """How many nodes were checked, and how many of them deviate; ``marker``: of the next call, null at the end."""

    checked: int
    deviating: int
    marker: str | None


def get_expectations(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """Show all expectations."""
    return Reply(200, ExpectationRoutes(list(context.data.store.read(lambda tx: tx.expectations.list()))))


def set_expectations(context: ApiContext, call: RouteCall[NoQuery, ExpectationRoutes]) -> Reply:
    """Replace all expectations; they apply to the inspections from now on."""
    new_expectations = call.body.expectations
    try:
        expectations.check(new_expectations)
    except ExpectationError as exc:
        raise BadRequestError(f"Invalid {exc}.") from None
    context.data.store.write(lambda tx: tx.expectations.replace(new_expectations))
    return Reply(200, ExpectationRoutes(new_expectations))


def check(context: ApiContext, call: RouteCall[CheckQuery, None]) -> Reply:
    """Check the stored hardware of some nodes against the expectations; repeat with ``marker`` for the others."""
    marker = paging.marker(call.query.marker)

    def work(tx: Transaction) -> Checked:
        expected = context.services.rules.current(tx).expectations
        page = tx.nodes.list(Query(marker=marker, sort_key="uuid", limit=_PAGE_NODES))
        node_uuids = [node.uuid for node in page if node.search_digest is not None]
        rows = tx.search_index.some(node_uuids, tuple(KINDS)) if node_uuids else {}
        deviating = 0
        for uuid in node_uuids:
            node = tx.nodes.get(uuid, lock=True)
            differing = expectations.deviations(expected, rows.get(uuid, []), node)
            deviating += bool(differing)
            _save(context.process, tx, node, msgspec.to_builtins(differing))
        return Checked(len(node_uuids), deviating, page[-1].uuid if len(page) == _PAGE_NODES else None)

    return Reply(200, context.data.store.write(work))


def _save(process: ProcessContext, tx: Transaction, node: Node, differing: list[dict[str, str]]) -> None:
    changed = expectations.with_deviations(node, differing)
    if changed is None:
        return
    tx.nodes.update(changed)
    message, severity, reason = expectations.timeline_entry(differing)
    tx.journal.append(
        [transition.step(node, "expectations", message, process=process.name, severity=severity, reason=reason)]
    )
