"""Switches and their ports with the machines behind them, from LLDP, and contradictions.

Two things contradict: several machines at one port, and a machine that is not where an expectation has it.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.contracts.store import CableEnd
from ferroscope.contrib.ui import naming
from ferroscope.contrib.ui.machine_list import SEARCH, seen, sees_all
from ferroscope.contrib.ui.page import FileDownload, HtmlPage, Visit
from ferroscope.db import Transaction
from ferroscope_client.core import values
from ferroscope_client.core.values import natural

# The most links on the page of several switches (with more, each switch has a page of its own), the most on the page of
# one switch, and the most unfolded switches.
_MAX_LINKS: Final = 500
_OF_ONE: Final = 2000
_MAX_OPEN_SWITCHES: Final = 2
# Visible switches of the index; a click shows the others.
_MAX_INDEXED_OPEN: Final = 100
# Contradictions that are shown; the export has all.
_MAX_CONTRADICTIONS: Final = 50
_COLUMNS: Final = ("switch", "port", "machine", "nic", "mac", "vlan", "mtu", "contradiction")

Port = tuple[str, str]
"""A switch and its port."""


class Found(msgspec.Struct):
    """The number of links of each switch, ports at which several machines are, and links as far as they are shown.

    ``at``: the machines at the first of the shared ports, UUID -> name.
    """

    switches: dict[str, int]
    shared: list[Port]
    at: dict[Port, dict[str, str]]
    links: Sequence[CableEnd]


def show(visit: Visit) -> HtmlPage | FileDownload:
    """Show the wiring, of all switches or of one."""
    if not visit.may(SEARCH):
        raise access.forbidden_error((SEARCH,), visit.identity)
    wanted = visit.asked("switch").lower()
    if visit.asked("format") == "csv":
        links = _links(visit, wanted)
        misplaced = _of_these(_list_misplaced(visit), links, wanted)
        body = _csv(_with_contradictions(links, misplaced))
        return FileDownload(name="wiring.csv", body=body, media="text/csv; charset=utf-8")
    return HtmlPage(template="wiring.html", title="Wiring", data=_view(visit, wanted))


def _view(visit: Visit, wanted: str) -> dict[str, Any]:
    """Return the switches, their links and the contradictions, for display."""
    wiring = (
        visit.remembered(("wiring", wanted), 0.0, lambda: visit.context.data.store.read(lambda tx: counted(tx, wanted)))
        if sees_all(visit)
        else of_links(_links(visit, wanted))
    )
    wiring = _with_names(visit, wiring)
    misplaced = _list_misplaced(visit)
    if wanted and misplaced:
        misplaced = _of_these(misplaced, wiring.links or _links(visit, wanted), wanted)
    contradicted = Counter(switch for switch, _ in wiring.shared)
    links: dict[str, list[dict[str, Any]]] = {}
    for link in _sort(wiring.links):
        links.setdefault(link.switch, []).append(msgspec.to_builtins(link))
    return {
        "switches": [
            {
                "name": name,
                "number_here": here,
                "number": wiring.switches[name],
                "machines": len({link["node"] for link in links.get(name, ())}),
                "contradictions": contradicted[name],
                "links": links.get(name, []),
            }
            for here, name in enumerate(sorted(wiring.switches, key=natural))
        ],
        "is_open": len(wiring.switches) <= _MAX_OPEN_SWITCHES,
        "indexed": _MAX_INDEXED_OPEN,
        "shared": [
            {
                "switch": switch,
                "port": port,
                "machines": [{"uuid": uuid, "name": name} for uuid, name in machines.items()][:10],
            }
            for switch, port in wiring.shared[:_MAX_CONTRADICTIONS]
            # Since the ports were counted, a machine may have gone.
            if len(machines := wiring.at.get((switch, port), {})) > 1
        ],
        "misplaced": misplaced[:_MAX_CONTRADICTIONS],
        "more_contradictions": sum(
            max(0, len(contradictions) - _MAX_CONTRADICTIONS) for contradictions in (wiring.shared, misplaced)
        ),
        "total": sum(wiring.switches.values()),
        "wanted": wanted,
    }


def _with_names(visit: Visit, wiring: Found) -> Found:
    """Return the same with names for machines without one."""
    machines = {uuid for port in wiring.at.values() for uuid, name in port.items() if name == uuid}
    machines |= {link.node for link in wiring.links if link.machine == link.node}
    if not machines:
        return wiring
    called = visit.context.data.store.read(lambda tx: naming.names(tx, machines))
    at = {port: {uuid: called.get(uuid, name) for uuid, name in some.items()} for port, some in wiring.at.items()}
    links = [msgspec.structs.replace(link, machine=called.get(link.node, link.machine)) for link in wiring.links]
    return msgspec.structs.replace(wiring, at=at, links=links)


def counted(tx: Transaction, wanted: str) -> Found:
    """Return the counts of all machines, from the database; only links on the page are read."""
    whole = tx.cabling.wiring()
    names = {wanted} if wanted in whole.switches else {name for name in whole.switches if wanted in name}
    switches = {name: whole.switches[name] for name in names}
    most = _OF_ONE if len(switches) == 1 else _MAX_LINKS
    fit = 0 < sum(switches.values()) <= most
    shared = _by_port(port for port in whole.shared_ports if port[0] in names)
    first = set(shared[:_MAX_CONTRADICTIONS])
    at = {port: _sort_machines(machines) for port, machines in tx.cabling.machines_at(first).items()}
    return Found(switches, shared, at, tx.cabling.links_of(names) if fit else [])


def of_links(links: Sequence[CableEnd]) -> Found:
    """Return the same as ``counted``, of these links."""
    switches = Counter(link.switch for link in links)
    at = {port: machines for port, machines in _machines_at(links).items() if len(machines) > 1}
    most = _OF_ONE if len(switches) == 1 else _MAX_LINKS
    return Found(dict(switches), _by_port(at), at, links if len(links) <= most else [])


def _machines_at(links: Iterable[CableEnd]) -> dict[Port, dict[str, str]]:
    machines_at: dict[Port, dict[str, str]] = {}
    for link in links:
        if link.port:
            machines_at.setdefault((link.switch, link.port), {})[link.node] = link.machine
    return {port: _sort_machines(machines) for port, machines in machines_at.items()}


def _sort_machines(machines: dict[str, str]) -> dict[str, str]:
    return dict(sorted(machines.items(), key=lambda named: natural(named[1])))


def _by_port(ports: Iterable[Port]) -> list[Port]:
    return sorted(ports, key=lambda port: (natural(port[0]), natural(port[1])))


def _sort(links: Iterable[CableEnd]) -> list[CableEnd]:
    return sorted(links, key=lambda link: (natural(link.switch), natural(link.port), link.machine))


def _links(visit: Visit, wanted: str) -> Sequence[CableEnd]:
    """Return the links of the machines whose inventory the visitor may see, to all switches or to one."""
    project = access.scope(visit.context.access.policy, visit.identity, "node")
    links = visit.context.data.store.read(lambda tx: tx.cabling.links(wanted, project))
    if not sees_all(visit):
        open_to = _choose_open(visit, {link.node for link in links})
        links = [link for link in links if link.node in open_to]
    exact = [link for link in links if link.switch == wanted]
    return exact or links


def _choose_open(visit: Visit, nodes: Iterable[str]) -> set[str]:
    """Return those of the nodes whose inventory the visitor may see."""
    return {node.uuid for node in seen(visit, sorted(nodes)) if visit.may(access.INVENTORY, node)}


def _of_these(misplaced: list[dict[str, str]], links: Iterable[CableEnd], wanted: str) -> list[dict[str, str]]:
    """Return the misplaced machines that have one of the links, or should have one to this switch."""
    there = {link.node for link in links}
    return [row for row in misplaced if row["uuid"] in there or wanted in row["condition"].lower()]


def _list_misplaced(visit: Visit) -> list[dict[str, str]]:
    """Return the failed conditions about switches and ports, each with its machine and the actual value."""
    misplaced = visit.context.data.store.read(lambda tx: tx.cabling.wiring()).misplaced
    if not sees_all(visit):
        open_to = _choose_open(visit, {row["uuid"] for row in misplaced})
        misplaced = [row for row in misplaced if row["uuid"] in open_to]
    return sorted(misplaced, key=lambda row: natural(row["machine"]))


def _with_contradictions(links: Sequence[CableEnd], misplaced: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return the links with their contradictions; machines that lack an expected link are at the end."""
    others = _machines_at(links)
    texts: dict[str, list[str]] = {}
    for row in misplaced:
        text = f"expected {row['condition']} ({row['expectation']}); found {row['found']}"
        texts.setdefault(row["uuid"], []).append(text)
    rows = []
    for link in _sort(links):
        beside = [name for uuid, name in others.get((link.switch, link.port), {}).items() if uuid != link.node]
        also = [f"also at this port: {', '.join(beside)}"] if beside else []
        contradiction = "; ".join(also + texts.get(link.node, []))
        rows.append(msgspec.to_builtins(link) | {"contradiction": contradiction})
    linked = {link.node for link in links}
    unlinked = {row["uuid"]: row["machine"] for row in misplaced if row["uuid"] not in linked}
    blank = dict.fromkeys(_COLUMNS, "")
    return rows + [
        blank | {"machine": name, "contradiction": "; ".join(texts[uuid])} for uuid, name in unlinked.items()
    ]


def _csv(links: list[dict[str, Any]]) -> bytes:
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(_COLUMNS)
    writer.writerows([values.spreadsheet_cell(link[name]) for name in _COLUMNS] for link in links)
    return output.getvalue().encode("utf-8", "replace")
