"""GET /v1/prometheus/targets: the machines that a search finds, for the HTTP-based service discovery of Prometheus."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.baremetal import node_filters, nodes
from ferroscope.api.baremetal.search import matches, parse_query
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import AddedRoutes, Reply, RouteCall, Surface, make
from ferroscope.api.http.schemas import one_of
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.plugins import ExportOptions
from ferroscope.contrib.dcim.exporters.prometheus import TARGETS, PrometheusExporter
from ferroscope.db import Transaction
from ferroscope.hardware import expressions
from ferroscope_client.core.labels import Selector

_ALL: Final = "has uuid"
_NODES_PER_PAGE: Final = 500


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


def list_targets(context: ApiContext, call: RouteCall[TargetsQuery, None]) -> Reply:
    """List machines as targets for the service discovery of Prometheus."""
    parameters = call.query
    try:
        exporter = PrometheusExporter(ExportOptions(parameters={"target": parameters.target, "port": parameters.port}))
    except ValueError as exc:
        raise BadRequestError(f"{str(exc).capitalize()}.") from None
    query = parse_query(parameters.q)
    selector = node_filters.selector(parameters.labels) if parameters.labels else Selector(())

    def work(tx: Transaction, room: Room) -> bytes:
        output = io.BytesIO()
        exporter.write(_nodes(context, call, tx, room, query, selector, exporter.fields), output)
        return output.getvalue()

    return Reply(200, context.data.read_list(work))


def _nodes(
    context: ApiContext,
    call: RouteCall[TargetsQuery, None],
    tx: Transaction,
    room: Room,
    query: expressions.Query,
    selector: Selector,
    fields: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Yield the nodes as the newest API shows them to the caller: Prometheus asks for no microversion."""
    newest = msgspec.structs.replace(call, minor=BARE_METAL.maximum[1])
    after = ""
    while page := matches(context, call.identity, tx, room, query, _NODES_PER_PAGE, after):
        after = page[-1].uuid
        listed = paging.of_uuids(room, tx.nodes, (node.uuid for node in page))
        wanted = (node for node in listed if not node.inbox and selector.fits(node.labels))
        yield from nodes.views(context, newest, wanted, ("name", *fields))


ROUTES: Final = AddedRoutes(
    rows=(
        make(
            Surface.BARE_METAL,
            "GET /v1/prometheus/targets",
            list_targets,
            "ferroscope:search",
            200,
            list[TargetGroup],
        ),
    ),
    after="GET /v1/search",
)
