"""Cabling: the connections between NICs and switch ports, from the search index, as counts or as links.

Texts are as the index has them, in lower case. A switch is selected by a part of its name, or by all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Select, and_, bindparam, func, literal_column, select

from ferroscope.contracts.store import CableEnd
from ferroscope.db import mapping, schema
from ferroscope.db.counted_ahead import CountedAhead
from ferroscope.db.search import windows
from ferroscope.db.session import Repository
from ferroscope.hardware.expectations import KEY, is_about_wiring
from ferroscope_client.core import json_safety
from ferroscope_client.hardware.search_fields import KINDS

_i, _n = schema.search_index.c, schema.nodes.c
_switch, _port, *_own = (_i[KINDS["nic"][name].column] for name in ("switch", "port", "name", "mac", "vlan", "mtu"))
_LINKS: Final = (
    select(_switch, _port, _n.uuid, _n.name, *_own)
    .select_from(schema.search_index.join(schema.nodes, _i.node == _n.uuid))
    .order_by(_switch, _port, _n.uuid, _i.position)
)
# The kind is a literal, because the index of switches has the rows of NICs only.
_HAS_SWITCH: Final = and_(_i.kind == literal_column("'nic'"), _switch.is_not(None))
_MAX_SWITCHES_AT_ONCE: Final = 500
_COUNT = (
    select(_switch, func.count())
    .where(_HAS_SWITCH, _switch > bindparam("after"))
    .group_by(_switch)
    .order_by(_switch)
    .limit(_MAX_SWITCHES_AT_ONCE)
)
_SHARED_PORTS = (
    select(_switch, _port)
    .where(_HAS_SWITCH, _port.is_not(None), _switch > bindparam("after"), _switch <= bindparam("last"))
    .group_by(_switch, _port)
    .having(func.min(_i.node) < func.max(_i.node))
)
# Behind a switch that does not speak LLDP, all machines are at one port.
_MAX_MACHINES_OF_PORT: Final = 10
_OF_PORT = (
    select(_i.node)
    .where(_i.kind == literal_column("'nic'"), _switch == bindparam("switch"), _port == bindparam("port"))
    .group_by(_i.node)
    .order_by(_i.node)
    .limit(_MAX_MACHINES_OF_PORT)
    .subquery("of_port")
)
_MACHINES_AT = select(_n.uuid, _n.name).join(_OF_PORT, _OF_PORT.c.node == _n.uuid)


_DEVIATING = select(_n.uuid, _n.name, _n.attributes).where(mapping.has_attribute(KEY))
_MAX_MISPLACED: Final = 10_000


class Wiring(msgspec.Struct, frozen=True):
    """The number of links of each switch; ports, each with its switch, at which several machines claim to be.

    ``misplaced``: the conditions about switches and ports that machines fail, each with ``uuid`` and ``machine``.
    """

    switches: dict[str, int]
    shared_ports: list[tuple[str, str]]
    misplaced: list[dict[str, str]] = []


class Cabling(Repository):
    """The ends of cables, as the last inspection of each machine has found them by LLDP."""

    def wiring(self) -> Wiring:
        """Return how many links there are; of a large fleet, as they were counted some minutes ago."""
        return CountedAhead(self._tx).get("wiring", Wiring) or self.count()

    def count(self, keep_alive: Callable[[], None] = lambda: None) -> Wiring:
        """Count all links, of some hundred switches with each statement; ``keep_alive`` is called between them."""
        switches, shared, after = dict[str, int](), list[tuple[str, str]](), ""
        while rows := list(self._tx.run(_COUNT, {"after": after})):
            keep_alive()
            switches.update(tuple(row) for row in rows)
            names = {"after": after, "last": rows[-1][0]}
            shared += (tuple(row) for row in self._tx.run(_SHARED_PORTS, names))
            after = rows[-1][0]
        return Wiring(switches, shared, self._list_misplaced(keep_alive))

    def _list_misplaced(self, keep_alive: Callable[[], None]) -> list[dict[str, str]]:
        misplaced: list[dict[str, str]] = []
        for window in windows(self._tx):
            keep_alive()
            for uuid, name, attributes in self._tx.connection.execute(_DEVIATING.where(window)):
                deviations = json_safety.decode_own(attributes).get(KEY, [])
                named = {"uuid": uuid, "machine": name or uuid}
                misplaced += (named | failed for failed in deviations if is_about_wiring(failed["condition"]))
            if len(misplaced) >= _MAX_MISPLACED:
                break
        return misplaced[:_MAX_MISPLACED]

    def links(self, part: str = "", project: str | None = None) -> Sequence[CableEnd]:
        """Return the links by switch and port; ``project`` as in ``contracts.store.Query``."""
        statement, parameters = _LINKS.where(_HAS_SWITCH, _switch.contains(part, autoescape=True)), {}
        if project is not None:
            statement, parameters = statement.where(mapping.in_project(schema.nodes)), mapping.of_project(project)
        return self._read(statement, parameters)

    def links_of(self, switches: Collection[str]) -> Sequence[CableEnd]:
        """Return the links of these switches, by switch and port."""
        return self._read(_LINKS.where(_HAS_SWITCH, _switch.in_(sorted(switches))), {})

    def machines_at(self, ports: Collection[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
        """Return the first machines at each of these ports, UUID -> name; a port is named with its switch."""
        return {
            (switch, port): {node: name or node for node, name in rows}
            for switch, port in ports
            if (rows := list(self._tx.run(_MACHINES_AT, {"switch": switch, "port": port})))
        }

    def _read(self, statement: Select[Any], parameters: Mapping[str, Any]) -> list[CableEnd]:
        rows = self._tx.connection.execute(statement, parameters).all()
        return [
            CableEnd(switch, port or "", node, name or node, nic or "", mac or "", _whole(vlan), _whole(mtu))
            for switch, port, node, name, nic, mac, vlan, mtu in rows
        ]


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
