"""Statistics: how many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from sqlalchemy import Double, bindparam, case, func, select

from ferroscope.contracts.store import Ended
from ferroscope.core.counts import Backlog, Census, FleetCounts, HardwareCondition, Population, group_failures
from ferroscope.core.model import Inspection
from ferroscope.core.states import Event
from ferroscope.db import mapping, schema
from ferroscope.db.counted_ahead import CountedAhead
from ferroscope.db.inspections import INSPECTION
from ferroscope.db.mapping import Whole
from ferroscope.db.search import windows
from ferroscope.db.session import Repository
from ferroscope_client.core import json_safety
from ferroscope_client.core.states import Provision, State

_nodes, _r = schema.nodes.c, schema.requests.c
_BACKLOG = (
    select(_r.event, func.count(), func.count(_r.claimed_node), func.min(_r.created_at))
    .group_by(_r.event)
    .order_by(_r.event)
)
_ALL_NODES = select(func.count()).select_from(schema.nodes)
_i = schema.inspections.c
# An error ends with the hint of its reason, so few groups are read, however many nodes have one.
_ERROR_END_CHARACTERS = 48
_ERROR_END = func.substr(_nodes.last_error, func.char_length(_nodes.last_error) - _ERROR_END_CHARACTERS + 1)
_ERRORS = (
    select(func.min(_nodes.last_error), func.count(), func.min(func.coalesce(_nodes.name, _nodes.uuid)))
    .where(_nodes.last_error.is_not(None))
    .group_by(_ERROR_END)
)
_CHANGED = (
    select(*INSPECTION.columns, func.count().over())
    .where(_i.finished_at >= bindparam("since"), _i.changes > 0)
    .order_by(_i.finished_at.desc(), _i.uuid)
    .limit(bindparam("limit"))
)


_BAR = Whole((_i.finished_at - bindparam("first", type_=Double)) / bindparam("width", type_=Double)).label("bar")
_ENDED = (
    select(_BAR, func.count(), func.count(case((_i.state == State.ERROR.value, 1))))
    .where(
        _i.finished_at >= bindparam("first", type_=Double),
        _i.finished_at < bindparam("end", type_=Double),
        _i.reapplies.is_(None),
    )
    .group_by(_BAR)
)
_SHARDED = select(_nodes.attributes).where(mapping.has_attribute("shard"))

# The summary of the hardware is a document in one column, which begins with the health: a search of
# the whole text takes seven times as long. Reading all nodes takes most of the time, so one query computes all numbers.
_HEALTH = '{"health":"'
_DRIVES = '","failing_drives":'
_HEALTH_OF = case(
    (_nodes.hardware.like(f"{_HEALTH}%"), func.substr(_nodes.hardware, 1, len(f"{_HEALTH}critical{_DRIVES}"))), else_=""
).label("health")
_DEVIATES = case((mapping.has_attribute("deviations"), 1), else_=0).label("deviates")
_ORPHANED = case((_nodes.orphaned_at.is_not(None), 1), else_=0).label("orphaned")
_ALIKE = (
    _nodes.state, _nodes.provision_state, _nodes.driver, _nodes.maintenance, _nodes.inbox,
    _ORPHANED, _DEVIATES, _HEALTH_OF,
)  # fmt: skip
_CENSUS = select(*_ALIKE, func.count()).group_by(*_ALIKE)


class _Shard(msgspec.Struct):
    shard: str | None = None


E = TypeVar("E", State, Provision, Event)


def _to_enum(kind: type[E], value: str) -> E:
    """Return the enum member; a value that only a newer release knows is returned as plain text."""
    return kind(value) if value in kind.__members__.values() else cast("E", value)


class Statistics(Repository):
    """Counts for display and monitoring only."""

    def fleet(self) -> FleetCounts:
        """Return how many nodes there are; of a large fleet, as they were counted some seconds ago."""
        return CountedAhead(self._tx).get("fleet", FleetCounts) or self.count_fleet()

    def count_fleet(self, keep_alive: Callable[[], None] = lambda: None) -> FleetCounts:
        """Count all nodes, some thousand with each statement; ``keep_alive`` is called between them."""
        counts, states, drivers, errors = Counter[str](), Counter[tuple[str, str]](), set[str](), list[Any]()
        for window in windows(self._tx):
            keep_alive()
            for (
                state,
                provision,
                driver,
                maintenance,
                inbox,
                orphaned,
                deviates,
                health,
                nodes,
            ) in self._tx.connection.execute(_CENSUS.where(window)):
                states[state, provision] += nodes
                drivers.add(driver)
                health_state, failing, _ = health.removeprefix(_HEALTH).partition(_DRIVES)
                names = {
                    health_state.partition('"')[0],
                    "maintenance" * maintenance,
                    "inbox" * inbox,
                    "orphans" * orphaned,
                    "deviating" * deviates,
                }
                counts.update(dict.fromkeys(names | {"failing_drives" if failing else ""}, nodes))
            errors += self._tx.connection.execute(_ERRORS.where(window))
        census = Census(
            nodes=[
                Population(state=_to_enum(State, state), provision_state=_to_enum(Provision, provision), nodes=nodes)
                for (state, provision), nodes in sorted(states.items())
            ],
            maintenance=counts["maintenance"],
            inbox=counts["inbox"],
            orphans=counts["orphans"],
            drivers=sorted(drivers),
            condition=HardwareCondition(**{name: counts[name] for name in HardwareCondition.__struct_fields__}),
        )
        return FleetCounts(census=census, failures=group_failures(errors))

    def shards(self) -> Mapping[str | None, int]:
        """Return the number of nodes in each shard; None: in no shard."""
        rows = self._tx.connection.execute(_SHARDED).scalars()
        counts: Counter[str | None] = Counter(json_safety.decode_own(row, _Shard).shard for row in rows)
        others = self._tx.connection.execute(_ALL_NODES).scalar_one() - counts.total()
        return counts + Counter({None: others})

    def labels(self, project: str | None = None) -> Mapping[tuple[str, str], int]:
        """Return the number of nodes with each label, by key and value; ``project`` as in ``Query``."""
        statement = select(_nodes.labels, func.count()).where(_nodes.labels != "{}").group_by(_nodes.labels)
        parameters = {}
        if project is not None:
            statement, parameters = statement.where(mapping.in_project(schema.nodes)), mapping.of_project(project)
        counts: Counter[tuple[str, str]] = Counter()
        for written, number in self._tx.connection.execute(statement, parameters):
            for label in json_safety.decode_own(written, dict[str, str]).items():
                counts[label] += number
        return counts

    def ended(self, first: float, width: float, number: int) -> Sequence[Ended]:
        """Return the inspections that ended within each of ``number`` intervals of this width from ``first`` on.

        It reads all inspections. Those that only processed stored data again are not counted.
        """
        intervals = [Ended(0, 0)] * number
        parameters = {"first": first, "width": width, "end": first + number * width}
        for interval, ended, failed in self._tx.connection.execute(_ENDED, parameters):
            intervals[min(int(interval), number - 1)] = Ended(ended - failed, failed)
        return intervals

    def changed(self, since: float, limit: int) -> tuple[int, Sequence[Inspection]]:
        """Return how many inspections that ended since then found changes of the hardware, and the newest of them."""
        changed_rows = self._tx.connection.execute(_CHANGED, {"since": since, "limit": limit}).all()
        return (changed_rows[0][-1] if changed_rows else 0), [INSPECTION.from_row(row[:-1]) for row in changed_rows]

    def backlog(self) -> Sequence[Backlog]:
        """Return the requests on the queue by event."""
        rows = self._tx.connection.execute(_BACKLOG)
        return [
            Backlog(event=_to_enum(Event, event), waiting=total - claimed, claimed=claimed, oldest=oldest)
            for event, total, claimed, oldest in rows
        ]
