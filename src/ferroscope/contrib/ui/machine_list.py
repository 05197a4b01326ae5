"""Which machines a list shows: searched, filtered, sorted and counted, among those that the visitor may see."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.baremetal import node_filters, nodes
from ferroscope.api.baremetal.search import parse_query
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import paging
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import NoQuery, RouteCall
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.store import HARDWARE, SORTS
from ferroscope.contrib.ui.page import Visit
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.hardware import expectations
from ferroscope_client.core import labels
from ferroscope_client.core.explanations import HINTS
from ferroscope_client.core.states import PUBLISHED_STATES

# Labels in the menu, and for how many seconds they are remembered.
_MAX_MENU_LABELS: Final = 200
_MENU_SECONDS: Final = 10.0
SEARCH: Final = "ferroscope:search"
FIELDS: Final = (
    "uuid", "name", "provision_state", "power_state", "maintenance", "maintenance_reason", "driver", "owner",
    "lessee", "resource_class", "labels", "hardware", "last_error", "provision_updated_at",
    "inspection_finished_at", "created_at", "inbox", expectations.KEY,
)  # fmt: skip


class MachineSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which machines: a search in the CLI's language, or filters."""

    q: str = ""
    state: str = ""
    reason: str = ""
    maintenance: str = ""
    inbox: str = ""
    labels: str = ""

    @classmethod
    def of(cls, get: Callable[[str], str]) -> MachineSelection:
        wanted = cls(**{name: get(name) for name in cls.__struct_fields__})
        return msgspec.structs.replace(wanted, state=_STATES.get(_normalize_state(wanted.state), wanted.state))

    @property
    def query(self) -> str:
        """The search, together with the filters that the language has; ``BadRequestError`` for an invalid selector."""
        parts = [f"({self.q})"] if self.q else []
        parts += map(_search_for, node_filters.selector(self.labels).terms if self.labels else ())
        parts += [f"state == '{self.state}'"] if self.state in PUBLISHED_STATES else []
        parts += [f"maintenance == {self.maintenance}"] if self.maintenance in ("yes", "no") else []
        parts += [f"inbox == {self.inbox}"] if self.inbox in ("yes", "no") else []
        return " and ".join(parts)

    @property
    def search(self) -> str:
        """The whole selection as a search, which finds the same on the command line and in the API."""
        return " and ".join(filter(None, (self.query, f"reason == {self.reason}" if self.reason else "")))


def _normalize_state(state: str) -> str:
    """Return the state in its usual spelling: clients and bookmarks also write ``inspect-failed``."""
    return re.sub("[-_]", " ", state)


_STATES: Final = {_normalize_state(state): state for state in PUBLISHED_STATES}
# The filters beside a search.
_FILTERS: Final[dict[str, Collection[str]]] = {
    "state": PUBLISHED_STATES, "reason": HINTS, "maintenance": ("yes", "no"), "inbox": ("yes", "no"),
}  # fmt: skip
_MAX_NAMED_VALUES: Final = 2


def _one_of(values: Collection[str]) -> str:
    return f": {' or '.join(values)}" if len(values) <= _MAX_NAMED_VALUES else ""


def _search_for(term: labels.LabelTerm) -> str:
    """Return a part of a selector in the language of searches, which compares without case."""
    values_of = [f"label.{term.key} == '{value}'" for value in sorted(term.values or ())]
    condition = f"({' or '.join(values_of)})" if values_of else f"has label.{term.key}"
    return f"not {condition}" if term.negated else condition


def menu(visit: Visit) -> list[tuple[str, int]]:
    """Return the labels of the machines that the caller may see, the most frequent first, and of how many they are."""
    project = access.scope(visit.context.access.policy, visit.identity, "node")
    counts = visit.remembered(
        ("labels", project),
        _MENU_SECONDS,
        lambda: visit.context.data.store.read(lambda tx: tx.statistics.labels(project)),
    )
    frequent = sorted(counts.items(), key=lambda label_count: (-label_count[1], label_count[0]))[:_MAX_MENU_LABELS]
    return [(labels.format_labels({key: value}), number) for (key, value), number in frequent]


def call_of(visit: Visit) -> RouteCall[NoQuery, None]:
    """Return a call by the visitor, for representations of nodes."""
    return RouteCall(path={}, query=NoQuery(), body=None, minor=BARE_METAL.maximum[1], url="", identity=visit.identity)


def ranked(visit: Visit, wanted: MachineSelection, sort: str = "name", *, descending: bool = False) -> list[str]:
    """Return the UUIDs of all machines that match, in this order; ``BadRequestError`` for an invalid search or filter.

    A visitor who may see a node but not its inventory must neither find it by its hardware nor learn about that from
    the order. A visitor who may not see why its inspection failed must not find it by that.
    """
    for name, allowed in _FILTERS.items():
        if (
            value := getattr(wanted, name)
        ) and value not in allowed:  # otherwise it would be left out, and all would match
            raise BadRequestError(f"Unknown {name} {value[:80]!r}{_one_of(allowed)}.")
    if wanted.q and not visit.may(SEARCH):
        raise access.forbidden_error((SEARCH,), visit.identity)
    sort = sort if sort in SORTS else "name"
    if wanted.q:  # separately, so that an error has its position in the entered text
        parse_query(wanted.q)
    text = wanted.search
    query = parse_query(text) if text else None
    project = access.scope(visit.context.access.policy, visit.identity, "node")

    def find(sort: str) -> list[str]:
        return visit.context.data.store.read(
            lambda tx: list(tx.ranking.uuids(query, sort=sort, descending=descending, project=project))
        )

    if sees_all(visit) and (not wanted.reason or visit.may(access.FAILURE)):
        return find(sort)
    in_order = find(sort)
    visible = {
        node.uuid: node for node in seen(visit, in_order) if not wanted.reason or visit.may(access.FAILURE, node)
    }
    open_to = {uuid for uuid, node in visible.items() if visit.may(access.INVENTORY, node)}
    if wanted.q:
        return [uuid for uuid in in_order if uuid in open_to]
    if sort in HARDWARE:
        return [uuid for uuid in in_order if uuid in open_to] + [
            uuid for uuid in find("name") if uuid in visible.keys() - open_to
        ]
    return [uuid for uuid in in_order if uuid in visible]


def sees_all(visit: Visit) -> bool:
    """Whether the visitor may see all machines with their inventories."""
    project = access.scope(visit.context.access.policy, visit.identity, "node")
    return project is None and visit.may(access.SEE) and visit.may(access.INVENTORY)


def views(visit: Visit, uuids: Sequence[str]) -> list[dict[str, Any]]:
    """Return these nodes, in this order, without those that the caller may not see."""

    def work(tx: Transaction, room: Room) -> dict[str, list[dict[str, Any]]]:
        listed = paging.of_uuids(room, tx.nodes, uuids)
        return {node.uuid: nodes.views(visit.context, call_of(visit), [node], FIELDS) for node in listed}

    views_by_uuid = visit.context.data.read_list(work)
    return [view for uuid in uuids for view in views_by_uuid.get(uuid, ())]


def seen(visit: Visit, uuids: Sequence[str]) -> list[Node]:
    if not uuids:
        return []
    return visit.context.data.read_list(
        lambda tx, room: [
            node
            for node in paging.of_uuids(room, tx.nodes, uuids)
            if access.sees(visit.context.access.policy, visit.identity, node)
        ]
    )
