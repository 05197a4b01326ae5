"""Resources of the Bare Metal API that are out of scope. Their lists are empty, as in a service that has none.

Clients list them, for example before they delete a node. Nothing can be created. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.api.http import paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import Handler, NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, Limit, SortDir, pair


class AbsentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the lists; there is nothing to filter."""

    detail: bool | None = None
    fields: list[str] | None = None
    limit: Limit | None = None
    marker: str | None = None
    name: str | None = None
    node: str | None = None
    owner: str | None = None
    project: str | None = None
    resource_class: str | None = None
    sort_dir: SortDir = "asc"
    sort_key: str = "id"
    state: str | None = None


class Volume(msgspec.Struct, frozen=True):
    """GET /v1/volume and GET /v1/nodes/{node}/volume: links."""

    connectors: list[ApiLink]
    targets: list[ApiLink]
    links: list[ApiLink]


Empty = dict[str, list[dict[str, Any]]]


def empty(key: str, summary: str) -> Handler:
    """Return the handler of a list that is always empty."""

    def handler(context: ApiContext, call: RouteCall[AbsentQuery, None]) -> Reply:
        paging.page_size(call.query.limit, context.settings.api.max_limit)
        paging.descending(call.query.sort_dir)
        if "node" in call.path:
            ident = node_ident(call)
            context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
        return Reply(200, {key: []})

    handler.__doc__ = f"{summary} There are none."
    return handler


def get_volume(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the links to the volume connectors and targets, of a node or of all nodes."""
    path = "volume"
    if "node" in call.path:
        ident = node_ident(call)
        path = f"nodes/{context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False).uuid}/volume"
    connectors, targets = (pair(call.url, f"{path}/{name}") for name in ("connectors", "targets"))
    return Reply(200, Volume(connectors=connectors, targets=targets, links=pair(call.url, path)))


allocations = empty("allocations", "List allocations.")
bios = empty("bios", "List the BIOS settings of a node.")
connectors = empty("connectors", "List volume connectors.")
deploy_templates = empty("deploy_templates", "List deploy templates.")
runbooks = empty("runbooks", "List runbooks.")
targets = empty("targets", "List volume targets.")
vifs = empty("vifs", "List the attached VIFs of a node.")
