"""Which NIC is connected to which port of which switch, from the search index: counted by the database, or as links.

Texts are as the index has them, in lower case. A switch is selected by a part of its name, or by all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, literal_column, select

from ferroscope.contracts.data import CableEnd
from ferroscope.db import mapping, schema
from ferroscope.db.search import containing
from ferroscope.db.session import Session
from ferroscope.hardware.search_index import KINDS

_i, _n = schema.search_index.c, schema.nodes.c
_switch, _port, *_own = (_i[KINDS["nic"][name].column] for name in ("switch", "port", "name", "mac", "vlan", "mtu"))
_LINKS: Final = (
    select(_switch, _port, _n.uuid, _n.name, *_own)
    .select_from(schema.search_index.join(schema.nodes, _i.node == _n.uuid))
    .order_by(_switch, _port, _n.uuid, _i.position)
)


class Cabling:
    """The ends of cables, as the last inspection of each machine has found them by LLDP."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def switches(self, part: str = "") -> Mapping[str, int]:
        """Return the number of links of each switch."""
        statement = select(_switch, func.count()).where(_on(part, exact=False)).group_by(_switch)
        return dict(tuple(row) for row in self._tx.connection.execute(statement))

    def shared_ports(self, part: str = "", *, exact: bool = False) -> Sequence[tuple[str, str]]:
        """Return the ports, each with its switch, at which several machines claim to be."""
        statement = (
            select(_switch, _port)
            .where(_on(part, exact=exact), _port.is_not(None))
            .group_by(_switch, _port)
            .having(func.min(_i.node) < func.max(_i.node))
        )
        return [(switch, port) for switch, port in self._tx.connection.execute(statement)]

    def links(self, part: str = "", *, exact: bool = False, project: str | None = None) -> Sequence[CableEnd]:
        """Return the links by switch and port; ``project`` as in ``contracts.store.Query``."""
        statement, parameters = _LINKS.where(_on(part, exact=exact)), {}
        if project is not None:
            statement, parameters = statement.where(mapping.in_project(schema.nodes)), mapping.of_project(project)
        return self._read(statement, parameters)

    def links_at(self, ports: Collection[tuple[str, str]]) -> Sequence[CableEnd]:
        """Return the links of these ports, each with its switch."""
        switches, numbers = sorted({switch for switch, _ in ports}), sorted({port for _, port in ports})
        statement = _LINKS.where(_on("", exact=False), _switch.in_(switches), _port.in_(numbers))
        return [link for link in self._read(statement, {}) if (link.switch, link.port) in ports]

    def _read(self, statement: Select[Any], parameters: Mapping[str, Any]) -> list[CableEnd]:
        rows = self._tx.connection.execute(statement, parameters).all()
        return [
            CableEnd(switch, port or "", node, name or node, nic or "", mac or "", _whole(vlan), _whole(mtu))
            for switch, port, node, name, nic, mac, vlan, mtu in rows
        ]


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _on(part: str, *, exact: bool) -> ColumnElement[bool]:
    # The kind is a literal, because the index of MACs has the rows of NICs only.
    has_switch = and_(_i.kind == literal_column("'nic'"), _switch.is_not(None))
    if not part:
        return has_switch
    return and_(has_switch, _switch == part if exact else containing(_switch, part))
