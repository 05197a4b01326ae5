"""GET /v1/search?q=: the nodes whose last inventory matches a query; ``hardware.query`` defines the language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.auth import access
from ferroscope.api.auth.identity import Identity
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import Reply, RouteCall
from ferroscope.api.http.schemas import Limit, Uuid
from ferroscope.contracts.store import Query, SearchMatch
from ferroscope.db import Transaction
from ferroscope.hardware import expressions
from ferroscope.hardware.query import QueryError, parse
from ferroscope.hardware.search_index import IndexRow, number, text

_GIB_BYTES: Final = 2**30


class SearchQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/search."""

    q: Annotated[str, msgspec.Meta(description="The query, for example: memory_gb >= 512 and nic.speed >= 25G")] = ""
    limit: Limit | None = None
    marker: Uuid | None = None


class FoundNode(msgspec.Struct, frozen=True):
    """A matching node with a summary of its hardware; texts are as reported by the machine."""

    uuid: str
    name: str | None
    provision_state: str
    maintenance: bool
    vendor: str | None = None
    product: str | None = None
    serial: str | None = None
    memory_gb: float | None = None
    storage: float | None = None
    cpu: str | None = None
    cpus: int | None = None
    arch: str | None = None
    hardware: dict[str, Any] = {}


class SearchResult(msgspec.Struct, frozen=True):
    """A page of nodes, ordered by UUID; ``next`` is the URL of the next page."""

    nodes: list[FoundNode]
    next: str | UnsetType = UNSET


def search(context: ApiContext, call: RouteCall[SearchQuery, None]) -> Reply:
    """Find the nodes whose last inventory matches the query."""
    asked = call.query
    query = parse_query(asked.q)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    after = paging.marker(asked.marker) or ""

    def work(tx: Transaction, room: Room) -> tuple[list[SearchMatch], dict[str, list[IndexRow]]]:
        match_list = matches(context, call.identity, tx, room, query, size + 1, after)
        older = [match.uuid for match in match_list[:size] if not match.hardware]
        return match_list, tx.search_index.some(older, ("node", "cpu")) if older else {}

    match_list, rows = context.data.read_list(work)
    nodes = [_view(match, rows.get(match.uuid, [])) for match in match_list[:size]]
    following = paging.next_link(call.url, "search", asked, size, nodes[-1].uuid) if len(match_list) > size else UNSET
    return Reply(200, SearchResult(nodes=nodes, next=following))


def parse_query(text: str) -> expressions.Query:
    """Return the query; ``BadRequestError``."""
    try:
        return parse(text)
    except QueryError as exc:
        raise BadRequestError(f"Invalid query: {exc}.") from None


def matches(
    context: ApiContext,
    identity: Identity,
    tx: Transaction,
    room: Room,
    query: expressions.Query,
    size: int,
    after: str,
) -> list[SearchMatch]:
    """Return up to ``size`` nodes after ``after`` that match and whose inventory the caller may see, by UUID."""
    policy = context.access.policy
    project = access.scope(policy, identity, "node")
    if project is None and policy.allows(access.INVENTORY, identity):
        return list(tx.search_index.search(query, size, after=after))

    def keep(match_list: Sequence[SearchMatch]) -> list[SearchMatch]:
        # A caller who may see a node but not its inventory, such as a lessee, must not find it by its hardware.
        listed = paging.of_uuids(room, tx.nodes, (match.uuid for match in match_list))
        permitted = [node for node in listed if access.may(policy, access.INVENTORY, identity, access.target_of(node))]
        seen = {node.uuid for node in permitted if access.sees(policy, identity, node)}
        return [match for match in match_list if match.uuid in seen]

    return paging.read_some(
        lambda page: tx.search_index.search(query, page.limit or 0, after=page.marker or "", project=project),
        Query(marker=after or None),
        size,
        keep,
    )[0]


def _view(match: SearchMatch, rows: list[IndexRow]) -> FoundNode:
    summary = match.hardware or _older(rows)
    memory = summary.get("memory")
    return FoundNode(
        uuid=match.uuid,
        name=match.name,
        provision_state=match.provision_state,
        maintenance=match.maintenance,
        memory_gb=None if memory is None else round(memory / _GIB_BYTES, 3),
        **{name: summary.get(name) for name in ("vendor", "product", "serial", "storage", "cpu", "cpus", "arch")},
        hardware=summary,
    )


def _older(rows: list[IndexRow]) -> dict[str, Any]:
    """Return the summary of a node that was inspected before summaries existed; its texts are in lower case."""
    node = next((row for row in rows if row.kind == "node"), IndexRow("node", 0))
    cpu = next((row for row in rows if row.kind == "cpu"), IndexRow("cpu", 0))
    summary: dict[str, Any] = {name: text(node, name) for name in ("vendor", "product", "serial", "firmware")}
    summary |= {"cpu": text(cpu, "model"), "arch": text(cpu, "arch")}
    numbers = {"cpus": number(cpu, "count"), "memory": number(node, "memory"), "storage": number(node, "storage")}
    summary |= {name: int(value) for name, value in numbers.items() if value is not None}
    return {name: value for name, value in summary.items() if value is not None}
