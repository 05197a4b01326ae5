"""GET /v1/search?q=: the nodes whose last inventory matches a query; ``hardware.query`` defines the language."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.auth import access
from ferroscope.api.auth.identity import Identity
from ferroscope.api.baremetal import nodes
from ferroscope.api.http import paging
from ferroscope.api.http.errors import BadRequestError
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import ApiContext, Call, Reply
from ferroscope.api.http.schemas import Limit, Uuid, one_of
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.data import Match
from ferroscope.contracts.exporters import ExportOptions
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.labels import Selector
from ferroscope.exporters.prometheus import TARGETS, PrometheusExporter
from ferroscope.hardware import expressions
from ferroscope.hardware.query import QueryError, parse
from ferroscope.hardware.search_index import IndexRow, number, text

_GIB: Final = 2**30


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


def search(context: ApiContext, call: Call[SearchQuery, None]) -> Reply:
    """Find the nodes whose last inventory matches the query."""
    asked = call.query
    query = parsed(asked.q)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    after = paging.marker(asked.marker) or ""

    def work(tx: Transaction, room: Room) -> tuple[list[Match], dict[str, list[IndexRow]]]:
        found = matches(context, call.identity, tx, room, query, size + 1, after)
        older = [one.uuid for one in found[:size] if not one.hardware]
        return found, tx.search_index.some(older, ("node", "cpu")) if older else {}

    found, rows = context.read_list(work)
    nodes = [_view(one, rows.get(one.uuid, [])) for one in found[:size]]
    following = paging.next_link(call.url, "search", asked, size, nodes[-1].uuid) if len(found) > size else UNSET
    return Reply(200, SearchResult(nodes=nodes, next=following))


def parsed(text: str) -> expressions.Query:
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
) -> list[Match]:
    """Return up to ``size`` nodes after ``after`` that match and whose inventory the caller may see, by UUID."""
    policy = context.policy
    project = access.scope(policy, identity, "node")
    if project is None and policy.allows(access.INVENTORY, identity):
        return list(tx.search_index.search(query, size, after=after))

    def keep(found: Sequence[Match]) -> list[Match]:
        # Who may see a node, but not its inventory, such as a lessee, must not find it by its hardware either.
        listed = paging.of_uuids(room, tx.nodes, (one.uuid for one in found))
        known = [node for node in listed if access.may(policy, access.INVENTORY, identity, access.target_of(node))]
        seen = {node.uuid for node in known if access.sees(policy, identity, node)}
        return [one for one in found if one.uuid in seen]

    return paging.read_some(
        lambda page: tx.search_index.search(query, page.limit or 0, after=page.marker or "", project=project),
        Query(marker=after or None),
        size,
        keep,
    )[0]


def _view(match: Match, rows: list[IndexRow]) -> FoundNode:
    known = match.hardware or _older(rows)
    memory = known.get("memory")
    return FoundNode(
        uuid=match.uuid,
        name=match.name,
        provision_state=match.provision_state,
        maintenance=match.maintenance,
        memory_gb=None if memory is None else round(memory / _GIB, 3),
        **{name: known.get(name) for name in ("vendor", "product", "serial", "storage", "cpu", "cpus", "arch")},
        hardware=known,
    )


def _older(rows: list[IndexRow]) -> dict[str, Any]:
    """Return the summary of a node that was inspected before summaries existed; its texts are in lower case."""
    node = next((row for row in rows if row.kind == "node"), IndexRow("node", 0))
    cpu = next((row for row in rows if row.kind == "cpu"), IndexRow("cpu", 0))
    known: dict[str, Any] = {name: text(node, name) for name in ("vendor", "product", "serial", "firmware")}
    known |= {"cpu": text(cpu, "model"), "arch": text(cpu, "arch")}
    numbers = {"cpus": number(cpu, "count"), "memory": number(node, "memory"), "storage": number(node, "storage")}
    known |= {name: int(value) for name, value in numbers.items() if value is not None}
    return {name: value for name, value in known.items() if value is not None}


_ALL: Final = "has uuid"
_PAGE: Final = 500


class TargetsQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/prometheus/targets."""

    target: Annotated[str, one_of(*TARGETS)] = "name"
    port: str = ""
    q: Annotated[str, msgspec.Meta(description="Only nodes that match this search")] = _ALL
    labels: Annotated[str, msgspec.Meta(description="Only nodes with these labels, such as rack=r1,!spare")] = ""


class TargetGroup(msgspec.Struct, frozen=True):
    """A machine; ``labels`` are its fields, as meta labels of Prometheus."""

    targets: list[str]
    labels: dict[str, str]


def list_targets(context: ApiContext, call: Call[TargetsQuery, None]) -> Reply:
    """List machines as targets for the service discovery of Prometheus."""
    asked = call.query
    try:
        exporter = PrometheusExporter(ExportOptions(parameters={"target": asked.target, "port": asked.port}))
    except ValueError as exc:
        raise BadRequestError(f"{str(exc).capitalize()}.") from None
    query = parsed(asked.q)
    selector = nodes.selector(asked.labels) if asked.labels else Selector(())

    def work(tx: Transaction, room: Room) -> bytes:
        output = io.BytesIO()
        exporter.write(_nodes(context, call, tx, room, query, selector, exporter.fields), output)
        return output.getvalue()

    return Reply(200, context.read_list(work))


def _nodes(
    context: ApiContext,
    call: Call[TargetsQuery, None],
    tx: Transaction,
    room: Room,
    query: expressions.Query,
    selector: Selector,
    fields: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Yield the nodes as the newest API shows them to the caller: Prometheus asks for no microversion."""
    newest = msgspec.structs.replace(call, version=BARE_METAL.maximum)
    after = ""
    while found := matches(context, call.identity, tx, room, query, _PAGE, after):
        after = found[-1].uuid
        listed = paging.of_uuids(room, tx.nodes, (one.uuid for one in found))
        wanted = (node for node in listed if not node.inbox and selector.fits(node.labels))
        yield from nodes.views(context, newest, wanted, ("name", *fields))
