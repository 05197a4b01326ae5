"""Switches and their ports with the machines behind them, from LLDP, and what contradicts it.

Two things do: several machines at one port, and a machine that is not where an expectation has it.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any, Final

from ferroscope.contrib.ui.machines import deviations_of
from ferroscope.contrib.ui.page import Download, Page, Visit
from ferroscope.core import values
from ferroscope.core.values import natural
from ferroscope.hardware import expectations
from ferroscope.hardware.search_index import IndexRow, text

_PAGE: Final = 500
_MACHINES: Final = 10_000
# Links that are on the page of all switches; of more, each switch has a page of its own. So many switches are unfolded.
_SHOWN: Final = 500
_OPEN: Final = 2
# Contradictions that are shown; the export has all.
_CONTRADICTIONS: Final = 50
_COLUMNS: Final = ("switch", "port", "machine", "nic", "mac", "contradiction")


def show(visit: Visit) -> Page | Download:
    """Show the wiring, of all switches or of one."""
    wanted = visit.asked("switch").lower()
    links, more = _links(visit)
    misplaced = _misplaced(visit)
    exact = wanted in {link["switch"] for link in links}
    if wanted:
        links = [link for link in links if (wanted == link["switch"] if exact else wanted in link["switch"])]
        there = {link["uuid"] for link in links}
        misplaced = [one for one in misplaced if one["uuid"] in there or wanted in one["condition"].lower()]
    links.sort(key=lambda link: (natural(link["switch"]), natural(link["port"]), link["machine"]))
    shared = _shared(links)
    if visit.asked("format") == "csv":
        body = _csv(_with_contradictions(links, shared, misplaced))
        return Download(name="wiring.csv", body=body, media="text/csv; charset=utf-8")
    switches: dict[str, list[dict[str, Any]]] = {}
    for link in links:
        switches.setdefault(link["switch"], []).append(link)
    contradicted = Counter(one["switch"] for one in shared)
    data = {
        "switches": [
            {
                "name": name,
                "number": len(found),
                "machines": len({one["uuid"] for one in found}),
                "contradictions": contradicted[name],
                "links": found if len(links) <= _SHOWN else [],
            }
            for name, found in switches.items()
        ],
        "is_open": len(switches) <= _OPEN,
        "shared": [one | {"machines": one["machines"][:10]} for one in shared[:_CONTRADICTIONS]],
        "misplaced": misplaced[:_CONTRADICTIONS],
        "more_contradictions": sum(max(0, len(found) - _CONTRADICTIONS) for found in (shared, misplaced)),
        "total": len(links),
        "more": more,
        "wanted": wanted,
    }
    return Page(template="wiring.html", title="Wiring", data=data)


def _links(visit: Visit) -> tuple[list[dict[str, str]], bool]:
    """Return each NIC whose switch is known, and whether there are more machines than are read."""
    found: list[dict[str, str]] = []
    machines, marker = 0, None
    while machines < _MACHINES:
        page = visit.call("GET /v1/search", q="has nic.switch", limit=_PAGE, marker=marker)
        names = {one["uuid"]: one["name"] or one["uuid"] for one in page["nodes"]}
        rows = _nics(visit, list(names))
        for uuid, name in names.items():
            for nic in rows.get(uuid, []):
                if switch := text(nic, "switch"):
                    found.append(
                        {"switch": switch, "port": text(nic, "port") or "", "machine": name, "uuid": uuid,
                         "nic": text(nic, "name") or "", "mac": text(nic, "mac") or ""}
                    )  # fmt: skip
        machines += len(names)
        if "next" not in page:
            return found, False
        marker = page["nodes"][-1]["uuid"]
    return found, True


def _nics(visit: Visit, uuids: list[str]) -> dict[str, list[IndexRow]]:
    return visit.context.data.store.read(lambda tx: tx.search_index.some(uuids, ("nic",)))


def _shared(links: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return ports at which several machines claim to be: a cable was moved, or a switch between them hides LLDP."""
    behind: dict[tuple[str, str], set[str]] = {}
    for link in links:
        if link["port"]:
            behind.setdefault((link["switch"], link["port"]), set()).add(link["machine"])
    return [
        {"switch": switch, "port": port, "machines": sorted(machines)}
        for (switch, port), machines in behind.items()
        if len(machines) > 1
    ]


def _misplaced(visit: Visit) -> list[dict[str, str]]:
    """Return the conditions about switches and ports that do not hold, each with its machine and what was found."""
    found: list[dict[str, str]] = []
    read, marker = 0, None
    if not visit.context.data.store.read(lambda tx: tx.statistics.condition()).deviating:
        return found
    while read < _MACHINES:
        fields = ["uuid", "name", expectations.KEY]
        page = visit.call("GET /v1/nodes", deviating=True, fields=fields, limit=_PAGE, marker=marker)
        for node in page["nodes"]:
            for one in deviations_of(node):
                if expectations.is_about_wiring(one["condition"]):
                    found.append({"uuid": node["uuid"], "machine": node["name"] or node["uuid"]} | one)
        read += len(page["nodes"])
        if "next" not in page:
            break
        marker = page["nodes"][-1]["uuid"]
    return sorted(found, key=lambda one: natural(one["machine"]))


def _with_contradictions(
    links: list[dict[str, str]], shared: list[dict[str, Any]], misplaced: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Return the links, each with what contradicts it; machines without a link that should have one are at the end."""
    others = {(one["switch"], one["port"]): one["machines"] for one in shared}
    texts: dict[str, list[str]] = {}
    for one in misplaced:
        text = f"expected {one['condition']} ({one['expectation']}); found {one['found']}"
        texts.setdefault(one["uuid"], []).append(text)
    rows = []
    for link in links:
        beside = [name for name in others.get((link["switch"], link["port"]), ()) if name != link["machine"]]
        also = [f"also at this port: {', '.join(beside)}"] if beside else []
        rows.append(link | {"contradiction": "; ".join(also + texts.get(link["uuid"], []))})
    linked = {link["uuid"] for link in links}
    unlinked = {one["uuid"]: one["machine"] for one in misplaced if one["uuid"] not in linked}
    blank = dict.fromkeys(_COLUMNS, "")
    return rows + [
        blank | {"machine": name, "contradiction": "; ".join(texts[uuid])} for uuid, name in unlinked.items()
    ]


def _csv(links: list[dict[str, str]]) -> bytes:
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(_COLUMNS)
    writer.writerows([values.spreadsheet_cell(link[name]) for name in _COLUMNS] for link in links)
    return output.getvalue().encode("utf-8", "replace")
