"""GET /v1/search?q=: the nodes whose last inventory fits a query; see ``domain.query`` for the language."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api import paging
from ferroscope.api.call import Call, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.documented import Limit, Uuid
from ferroscope.api.errors import BadRequestError
from ferroscope.domain.facts import Fact, number, text
from ferroscope.domain.query import QueryError, parse
from ferroscope.ports.facts import Match
from ferroscope.ports.store import Transaction

_GIB: Final = 2**30


class SearchQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/search."""

    q: Annotated[str, msgspec.Meta(description="A query, such as: memory_gb >= 512 and nic.speed >= 25G")] = ""
    limit: Limit | None = None
    marker: Uuid | None = None


class FoundNode(msgspec.Struct, frozen=True):
    """A node that fits, and what it is in short; texts are in lower case, as searches see them."""

    uuid: str
    name: str | None
    vendor: str | None = None
    product: str | None = None
    serial: str | None = None
    memory_gb: float | None = None
    storage: float | None = None
    cpu: str | None = None
    cpus: int | None = None
    arch: str | None = None


class SearchResult(msgspec.Struct, frozen=True):
    """A page of nodes, by UUID; ``next`` is the address of the page after it."""

    nodes: list[FoundNode]
    next: str | UnsetType = UNSET


def search(context: ApiContext, call: Call[SearchQuery, None]) -> Reply:
    """Find the nodes whose last inventory fits the query."""
    asked = call.query
    try:
        query = parse(asked.q)
    except QueryError as exc:
        raise BadRequestError(f"The query cannot be understood: {exc}.") from None
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    after = paging.marker(asked.marker) or ""

    def work(tx: Transaction) -> tuple[list[Match], dict[str, list[Fact]]]:
        found = list(tx.facts.search(query, size + 1, after=after))
        return found, tx.facts.some([one.uuid for one in found[:size]], ("node", "cpu")) if found else {}

    found, facts = context.store.read(work)
    nodes = [_view(one, facts.get(one.uuid, [])) for one in found[:size]]
    following = paging.next_link(call.url, "search", asked, size, nodes[-1].uuid) if len(found) > size else UNSET
    return Reply(200, SearchResult(nodes=nodes, next=following))


def _view(match: Match, facts: list[Fact]) -> FoundNode:
    node = next((fact for fact in facts if fact.kind == "node"), Fact("node", 0))
    cpu = next((fact for fact in facts if fact.kind == "cpu"), Fact("cpu", 0))
    memory, cpus = number(node, "memory"), number(cpu, "count")
    return FoundNode(
        uuid=match.uuid,
        name=match.name,
        vendor=text(node, "vendor"),
        product=text(node, "product"),
        serial=text(node, "serial"),
        memory_gb=None if memory is None else round(memory / _GIB, 3),
        storage=number(node, "storage"),
        cpu=text(cpu, "model"),
        cpus=None if cpus is None else int(cpus),
        arch=text(cpu, "arch"),
    )
