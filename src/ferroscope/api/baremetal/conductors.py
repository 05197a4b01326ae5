"""Conductors, as the Bare Metal API calls the hosts whose workers carry out requests.

A host with several worker processes is one conductor, alive while one of them is. Hosts whose workers died or left are
shown for an hour. Requests are not assigned to hosts: any worker takes any request. The conductor that a node shows is
chosen by its UUID among the living hosts that have its driver, so that it changes only if that host's workers end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

from ferroscope.api.baremetal.node_fields import chosen_fields
from ferroscope.api.baremetal.representation import (
    ApiField,
    DetailedListQuery,
    Representation,
    links,
    stored_field,
    timestamps,
)
from ferroscope.api.http import paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Reply, RouteCall
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Clock
from ferroscope.core.model import Member, Node
from ferroscope.db import Store, Transaction

SINCE_MINOR: Final = 49
# Seconds for which the living hosts are remembered, for the representation of nodes.
_CACHE_SECONDS: Final = 1.0


class Conductor(msgspec.Struct, frozen=True, kw_only=True):
    """A host; ``updated_at`` is the time of the last heartbeat. There are no groups of hosts."""

    hostname: str
    alive: bool
    drivers: list[str]
    created_at: float
    updated_at: float
    conductor_group: str = ""


def conductors(members: Iterable[Member], now: float, enabled: Collection[str]) -> list[Conductor]:
    """Return the conductors by hostname; ``enabled`` are the drivers of a member that does not report its own."""
    hosts: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        if member.works:
            hosts[member.host].append(member)
    return [_conductor(host, hosts[host], now, enabled) for host in sorted(hosts)]


def _conductor(host: str, members: list[Member], now: float, enabled: Collection[str]) -> Conductor:
    alive = [member for member in members if member.is_alive(now)]
    drivers = {str(name) for member in alive or members for name in member.detail.get("drivers", enabled)}
    return Conductor(
        hostname=host,
        alive=bool(alive),
        drivers=sorted(drivers),
        created_at=min(member.started_at for member in members),
        updated_at=max(member.expires_at - member.ttl for member in members),
    )


def conductor_of(node: Node, alive: Iterable[Conductor]) -> str | None:
    """Return the host that a node shows as its conductor; None if no living one has the node's driver."""
    hosts = [conductor.hostname for conductor in alive if node.driver in conductor.drivers]
    return max(hosts, key=lambda host: blake2b(f"{host} {node.uuid}".encode(), digest_size=8).digest(), default=None)


class LivingConductors:
    """The living conductors, read at most once a second. One instance serves all threads."""

    def __init__(self, store: Store, clock: Clock, enabled: Collection[str]) -> None:
        self._store = store
        self._clock = clock
        self._enabled = enabled
        self._known: tuple[float, list[Conductor]] = float("-inf"), []

    def __call__(self, node: Node) -> str | None:
        """Return the node's conductor."""
        now = self._clock.monotonic()
        until, all_conductors = self._known
        if now >= until:
            all_conductors = [
                conductor for conductor in self._store.read(lambda tx: _all(tx, self._enabled)) if conductor.alive
            ]
            self._known = now + _CACHE_SECONDS, all_conductors
        return conductor_of(node, all_conductors)


def _all(tx: Transaction, enabled: Collection[str]) -> list[Conductor]:
    return conductors(tx.members.list(left=True), tx.now, enabled)


SHOWN: Final = Representation[Conductor](
    "conductor",
    "conductors",
    (
        stored_field("hostname", str, sorts=True),
        stored_field("conductor_group", str, sorts=True),
        stored_field("alive", bool),
        stored_field("drivers", list[str]),
        links("conductors", "hostname"),
        *timestamps(),
    ),
    default=("hostname", "conductor_group", "alive"),
)
ConductorFieldName = SHOWN.names()
ConductorView = SHOWN.view("ConductorView")
ConductorList = SHOWN.page("ConductorList", ConductorView)


class ConductorListQuery(DetailedListQuery, frozen=True, kw_only=True):
    """Query of GET /v1/conductors; ``marker`` is a hostname."""

    marker: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    sort_key: SHOWN.sort_keys() = "id"  # type: ignore[valid-type]  # made from the table above
    detail: bool | None = None
    fields: list[ConductorFieldName] | None = None  # type: ignore[valid-type]


class ConductorQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/conductors/{hostname}."""

    fields: list[ConductorFieldName] | None = None  # type: ignore[valid-type]


def list_conductors(context: ApiContext, call: RouteCall[ConductorListQuery, None]) -> Reply:
    """List the hosts with workers, by default with name, group and whether they are alive."""
    asked = call.query
    fields: tuple[ApiField[Conductor], ...] = SHOWN.select_listed(call.minor, asked.fields, asked.detail)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    key = paging.sort_field(asked.sort_key, SHOWN.sort_fields)
    reverse = paging.descending(asked.sort_dir)
    all_conductors = context.data.store.read(lambda tx: _all(tx, context.services.drivers))
    all_conductors.sort(key=lambda conductor: (getattr(conductor, key), conductor.hostname), reverse=reverse)
    start = 0 if asked.marker is None else all_conductors.index(_find_conductor(all_conductors, asked.marker)) + 1
    shown = all_conductors[start : start + size]
    items = [msgspec.Raw(paging.encode(SHOWN.render(conductor, fields, call.url))) for conductor in shown]
    last = shown[-1].hostname if start + size < len(all_conductors) else None
    return SHOWN.reply(call, "conductors", paging.Page(items, last), size)


def get_conductor(context: ApiContext, call: RouteCall[ConductorQuery, None]) -> Reply:
    """Show one host with workers."""
    fields = SHOWN.select(call.minor, chosen_fields(call.minor, call.query.fields, None, None))
    all_conductors = context.data.store.read(lambda tx: _all(tx, context.services.drivers))
    return Reply(200, SHOWN.render(_find_conductor(all_conductors, call.path["hostname"]), fields, call.url))


def _find_conductor(all_conductors: list[Conductor], hostname: str) -> Conductor:
    for conductor in all_conductors:
        if conductor.hostname == hostname:
            return conductor
    raise NotFoundError("conductor", hostname[:255])
