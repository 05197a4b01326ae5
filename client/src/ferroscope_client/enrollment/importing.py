"""Imports the rows of a file: for each row, it creates a node, changes one, or does nothing.

An import creates missing nodes and changes different values. It leaves alone what the file does not mention, so it can
be repeated, also after an interruption. Correct rows are imported even if others are wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Protocol

import msgspec

from ferroscope_client.core import bmc_place, values
from ferroscope_client.core.bmc_place import ALLOW_SHARED, Place, PlaceIndex, is_place
from ferroscope_client.core.driver_names import not_enabled
from ferroscope_client.core.node import SETTABLE
from ferroscope_client.enrollment import node_file
from ferroscope_client.enrollment.node_file import DOCUMENTS, Json, NodeRow, refuse_repetitions

CREATED: Final = "created"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"
FAILED: Final = "failed"
TO_CREATE: Final = "would be created"
TO_CHANGE: Final = "would be changed"


class RowError(Exception):
    """Why a row cannot be carried out; ``message`` is for the user."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class ImportApi(Protocol):
    """The calls that an import makes; each raises ``RowError``."""

    def create(self, fields: Json, macs: Collection[str]) -> Json:
        """Create a node with its ports, and return it; on an error nothing is created."""

    def add_port(self, node: str, mac: str) -> None:
        """Create a port of the node with this UUID."""

    def change(self, node: str, patch: list[Json]) -> None:
        """Change the node with this UUID."""


class Drivers(Protocol):
    """What an import must know of the drivers."""

    def enabled(self) -> Collection[str]: ...

    def properties(self, driver: str) -> Iterable[str]:
        """Return the names of the properties in ``driver_info``."""


class RowResult(msgspec.Struct):
    """The result of a row of the file; ``detail``: what was changed, or why it failed."""

    where: str
    node: str
    uuid: str | None
    result: str
    detail: str = ""


class ExistingFleet:
    """The existing nodes, by the identifiers of the rows of a file; and where the rows put their BMCs."""

    def __init__(self, nodes: Iterable[Json], ports: Iterable[Json], *, rename: bool = False) -> None:
        self._rename = rename
        self._nodes = {node["uuid"]: node for node in nodes}
        self._names = {node["name"]: node["uuid"] for node in self._nodes.values() if node["name"]}
        self._macs = {port["address"]: port["node_uuid"] for port in ports}
        self._at_bmc: PlaceIndex[str] = PlaceIndex()
        for node in self._nodes.values():
            self._at_bmc.add(node["uuid"], bmc_place.exclusive_places(_info_of(node)))
        self._places_to_be: dict[str, tuple[Place, ...]] = {}

    def expect_moves(self, rows: Iterable[NodeRow]) -> None:
        """Record where the correct rows put their BMCs."""
        for row in rows:
            if not row.errors and (node := self.node_of(row)):
                self._places_to_be[node["uuid"]] = bmc_place.exclusive_places(_info_of(node) | _info_of(row.fields))

    def expect_no_move(self, node: Json) -> None:
        """Record that the BMC of this node stays where it is."""
        self._places_to_be.pop(node["uuid"], None)

    def find(self, row: NodeRow) -> Json | None:
        """Return the node of a row, None if there is none; ``RowError`` if the row identifies two nodes.

        A new name with the MAC address of a named node is an error, too: usually one of them is mistyped.
        """
        name, uuid = row.fields.get("name"), row.fields.get("uuid")
        owners = {f"UUID {uuid}": uuid} if uuid in self._nodes else {}
        if name in self._names:
            owners[f"name {name}"] = self._names[name]
        owners |= {f"MAC address {mac}": self._macs[mac] for mac in row.macs if mac in self._macs}
        if len(set(owners.values())) > 1:
            matches = ", ".join(
                f"{identifier} is {label(self._nodes[node])}"
                for identifier, node in owners.items()
                if node in self._nodes
            )
            raise RowError(f"the row matches several nodes: {matches}")
        identifier, node = next(
            ((identifier, self._nodes.get(there)) for identifier, there in owners.items()), ("", None)
        )
        if node and name and uuid != node["uuid"] and node["name"] not in (None, name) and not self._rename:
            raise RowError(
                f"{identifier} belongs to node {node['name']}; to rename the node, add its uuid "
                f"{node['uuid']} to the row, or use --rename"
            )
        return node

    def node_of(self, row: NodeRow) -> Json | None:
        """Return the node of a row, None if there is none, or if the row does not identify it."""
        try:
            return self.find(row)
        except RowError:
            return None

    def refuse_shared_bmc(self, node: Json | None, info: Json) -> None:
        """Raise ``RowError`` if the node with this ``driver_info`` would newly share the BMC of another one."""
        for place, uuid in self._in_the_way(node, info):
            if not self._is_leaving(uuid, place):
                owner = self._nodes[uuid]
                if owner.get("inbox"):
                    advice = ", or add its uuid to the row"
                    raise RowError(bmc_place.in_inbox_message(place, label(owner), or_else=advice))
                raise RowError(bmc_place.shared_message(place, f"belongs to node {label(owner)}"))

    def leaving_before(self, row: NodeRow) -> set[str]:
        """Return the nodes whose own rows move them away from the place to which this row moves its node."""
        node = self.node_of(row)
        info = _info_of(node) | _info_of(row.fields)
        return {uuid for place, uuid in self._in_the_way(node, info) if self._is_leaving(uuid, place)}

    def _in_the_way(self, node: Json | None, info: Json) -> Iterator[tuple[Place, str]]:
        """Yield each place to which this ``driver_info`` newly leads, with a node that is there."""
        was = {uuid for _, uuid in self._at_bmc.owners(bmc_place.exclusive_places(_info_of(node)))}
        for place, uuid in self._at_bmc.owners(bmc_place.exclusive_places(info)):
            if uuid not in was and (node is None or uuid != node["uuid"]):
                yield place, uuid

    def _is_leaving(self, uuid: str, place: Place) -> bool:
        places = self._places_to_be.get(uuid)
        return places is not None and bmc_place.first_shared([place], places) is None

    def lacks(self, macs: Iterable[str]) -> list[str]:
        """Return the MAC addresses that no node has."""
        return [mac for mac in macs if mac not in self._macs]


def label(node: Json) -> str:
    """Return how people identify the node."""
    return str(node["name"] or node["uuid"])


def use_drivers(drivers: Drivers, rows: Iterable[NodeRow]) -> None:
    """Put each row's BMC fields under the names of its driver's properties."""
    prefixes: dict[str, str] = {}
    enabled = drivers.enabled()
    for row in rows:
        driver = row.fields.get("driver")
        if driver is not None and driver not in enabled:
            row.errors.append(not_enabled(driver, enabled))
        elif row.bmc and driver is None:
            row.errors.append(f"{', '.join(row.bmc)} need a driver: add the column, or choose one for all")
        elif row.bmc and driver is not None:
            if driver not in prefixes:
                prefixes[driver] = bmc_prefix(drivers.properties(driver))
            if not prefixes[driver]:
                row.errors.append(f"driver {driver} has no BMC address; use driver_info/KEY")
            ends = {f"{prefixes[driver]}{name.removeprefix('bmc')}": value for name, value in row.bmc.items()}
            row.fields["driver_info"] = ends | row.fields.get("driver_info", {})


def check_rows(fleet: ExistingFleet, rows: Sequence[NodeRow]) -> None:
    """Add to each row all of its errors that can be found before the first change.

    All rows that contradict each other are wrong.
    """
    for row in rows:
        _check_row(fleet, row)
    right = [row for row in rows if not row.errors]
    refuse_repetitions(right, lambda row: [f"node {label(node)}"] if (node := fleet.node_of(row)) else [])
    _check_bmcs(fleet, rows)


def _check_row(fleet: ExistingFleet, row: NodeRow) -> None:
    row.errors += filter(None, (_problem(name, value) for name, value in row.fields.items()))
    try:
        if fleet.find(row) is None and row.label and "driver" not in row.fields and not row.bmc:
            row.errors.append(
                "the node does not exist; to create it a driver is required: add the column, or choose one"
            )
    except RowError as exc:
        row.errors.append(exc.message)


def _check_bmcs(fleet: ExistingFleet, rows: Iterable[NodeRow]) -> None:
    """Refuse new addresses of BMCs that cannot be right, and BMCs that rows would newly share."""
    seen: PlaceIndex[tuple[NodeRow, tuple[Place, ...]]] = PlaceIndex()
    told: set[str] = set()
    for row in rows:
        info, stored = _info_of(row.fields), _info_of(fleet.node_of(row))
        new = {key: value for key, value in info.items() if not _same(key, stored.get(key), value)}
        if why := bmc_place.problem(new):
            row.errors.append(why)
            continue
        if info and (missing := bmc_place.incomplete(stored | info)):
            row.errors.append(missing)
        own = bmc_place.exclusive_places(stored | info) if info else ()
        was = bmc_place.exclusive_places(stored)
        for place, (other_row, their_former) in seen.owners(own):
            if bmc_place.first_shared(was, their_former) is None:
                row.errors.append(bmc_place.shared_message(place, f"is also in {other_row.where}"))
                if other_row.where not in told:
                    other_row.errors.append(bmc_place.shared_message(place, f"is also in {row.where}"))
                told |= {row.where, other_row.where}
                break
        seen.add((row, was), own)


def in_rounds(
    api: ImportApi, fleet: ExistingFleet, rows: Sequence[NodeRow], *, dry_run: bool
) -> Iterator[list[NodeRow]]:
    """Yield the rows in rounds: a node leaves its BMC in a round before the one in which another node gets it.

    Nodes that exchange their BMCs would wait for each other. So one of them lets others use its BMC until it moves.
    """
    fleet.expect_moves(rows)
    right = ((number, row) for number, row in enumerate(rows) if not row.errors)
    nodes = {node["uuid"]: number for number, row in right if (node := fleet.node_of(row))}
    before = {number: {nodes[uuid] for uuid in fleet.leaving_before(row)} for number, row in enumerate(rows)}
    while True:
        turns = TopologicalSorter(before)
        try:
            turns.prepare()
            break
        except CycleError as exc:
            first, second = exc.args[1][:2]
            before[second].discard(first)
            if not dry_run:
                _step_aside(api, fleet, rows[first])
    while turns.is_active():
        ready = turns.get_ready()
        yield [rows[number] for number in sorted(ready)]
        turns.done(*ready)


def _step_aside(api: ImportApi, fleet: ExistingFleet, row: NodeRow) -> None:
    with suppress(RowError):  # then the row that needs the BMC fails, and says why
        if node := fleet.find(row):
            api.change(node["uuid"], [set_value("driver_info", ALLOW_SHARED, value=True)])
            row.steps_aside = True


def bmc_prefix(properties: Iterable[str]) -> str:
    """Return what precedes ``_address``, ``_username`` and ``_password`` in a driver's properties; "" if nothing."""
    names = [name for name in properties if name.endswith("_address")]
    return min(names, key=len).removesuffix("_address") if names else ""


def carry_out(api: ImportApi, fleet: ExistingFleet, row: NodeRow, *, dry_run: bool, passwords: bool) -> RowResult:
    """Create or change the node of a row; with ``dry_run``, only say so. Never raises ``RowError``.

    ``passwords``: also replace stored passwords.
    """
    if row.errors:
        return RowResult(row.where, row.label, None, FAILED, row.problem)
    node = None
    try:
        node = fleet.find(row)
        if "driver_info" in row.fields:
            fleet.refuse_shared_bmc(node, _info_of(node) | _info_of(row.fields))
        if node is None:
            return _create_node(api, row, dry_run=dry_run)
        changes, macs = _changes(node, row, passwords=passwords), fleet.lacks(row.macs)
        parts = [*(change["path"].lstrip("/") for change in changes), *(f"port {mac}" for mac in macs)]
        result = RowResult(row.where, label(node), node["uuid"], UNCHANGED, ", ".join(parts))
        if not parts:
            return result
        if not dry_run:
            for mac in macs:
                api.add_port(node["uuid"], mac)
            if changes:
                api.change(node["uuid"], changes + (_END_OF_SHARING if row.steps_aside else []))
        return msgspec.structs.replace(result, result=TO_CHANGE if dry_run else CHANGED)
    except RowError as exc:
        message = exc.message
        if node:
            fleet.expect_no_move(node)
        if node and row.steps_aside:
            try:
                api.change(node["uuid"], _END_OF_SHARING)
            except RowError:
                message += f"; another node has its BMC by now, so driver_info/{ALLOW_SHARED} stays until you remove it"
        return RowResult(row.where, row.label, None, FAILED, message)


def _info_of(node: Json | None) -> Json:
    """Return the ``driver_info`` of a node, or of the fields of a row."""
    return (node.get("driver_info") or {}) if node else {}


def _problem(name: str, value: Any) -> str:
    """Return why the service would refuse the value of a field; "" if it may accept it."""
    if not isinstance(value, str):
        return ""
    if name == "name" and value and not values.is_name(value):
        return f"invalid name {value[:80]!r}: expected {values.NAME}"
    if name == "uuid" and not values.is_uuid(value):
        return f"invalid UUID {value[:80]!r}"
    longest = SETTABLE[name].length if name in SETTABLE else None
    return f"{name} is longer than {longest} characters" if longest is not None and len(value) > longest else ""


def _create_node(api: ImportApi, row: NodeRow, *, dry_run: bool) -> RowResult:
    if dry_run:
        return RowResult(row.where, row.label, None, TO_CREATE)
    node = api.create(row.fields, row.macs)
    return RowResult(row.where, label(node), node["uuid"], CREATED)


def _changes(node: Json, row: NodeRow, *, passwords: bool) -> list[Json]:
    """Return the JSON patch that makes the node match the row; secrets go with a change of the BMC's address."""
    changes = []
    for name, value in row.fields.items():
        if name == "uuid":
            continue
        if name not in DOCUMENTS:
            if (node.get(name) or "") != (value or ""):
                changes.append(set_value(name, value=value))
            continue
        stored = node.get(name) or {}
        different = {key: item for key, item in value.items() if not _same(key, stored.get(key), item)}
        if passwords or any(is_place(key) for key in different):
            different |= {key: item for key, item in value.items() if values.is_secret(key)}
        changes += [set_value(name, key, value=item) for key, item in different.items()]
    return changes


def set_value(*path: str, value: Any) -> Json:
    """Return the step of a JSON patch that sets a field, or a key of a document."""
    return {"op": "add", "path": pointer(*path), "value": value}


def pointer(*path: str) -> str:
    """Return the JSON pointer to a place. Source: RFC 6901."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)


_END_OF_SHARING: Final = [{"op": "remove", "path": pointer("driver_info", ALLOW_SHARED)}]


def _same(key: str, stored: Any, wanted: Any) -> bool:
    if values.is_secret(key):
        return bool(stored == values.MASK)
    return stored is not None and str(wanted) in (str(stored), node_file.text(stored))
