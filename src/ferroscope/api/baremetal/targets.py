"""GET /v1/prometheus/targets: the fleet for Prometheus's HTTP-based service discovery.

Prometheus wants all targets in one response, so nodes are read and written page by page. Source: the Prometheus
documentation, ``http_sd_config``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.baremetal import nodes
from ferroscope.api.baremetal.search import matches, parsed
from ferroscope.api.http.errors import BadRequestError
from ferroscope.api.http.route import ApiContext, Call, Reply
from ferroscope.api.http.schemas import one_of
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.exporters import ExportOptions
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.labels import Selector
from ferroscope.exporters.prometheus import TARGETS, PrometheusExporter
from ferroscope.hardware import expressions

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

    def work(tx: Transaction) -> bytes:
        output = io.BytesIO()
        exporter.write(_nodes(context, call, tx, query, selector, exporter.fields), output)
        return output.getvalue()

    return Reply(200, context.store.read(work))


def _nodes(
    context: ApiContext,
    call: Call[TargetsQuery, None],
    tx: Transaction,
    query: expressions.Query,
    selector: Selector,
    fields: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Yield the nodes as the newest API shows them to the caller: Prometheus asks for no microversion."""
    newest = msgspec.structs.replace(call, version=BARE_METAL.maximum)
    after = ""
    while found := matches(context, call.identity, tx, query, _PAGE, after):
        after = found[-1].uuid
        listed = tx.nodes.list(Query(filters={"uuid": tuple(one.uuid for one in found)}, sort_key="uuid"))
        wanted = (node for node in listed if not node.inbox and selector.fits(node.labels))
        yield from nodes.views(context, newest, wanted, ("name", *fields))
