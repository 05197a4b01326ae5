"""Switches and their ports with the machines behind them, from LLDP."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from ferroscope.core import values
from ferroscope.core.values import natural
from ferroscope.hardware.search_index import IndexRow, text
from ferroscope.ui.page import Download, Page, Visit

_PAGE: Final = 500
_MACHINES: Final = 10_000
_SHOWN: Final = 2_000
_COLUMNS: Final = ("switch", "port", "machine", "nic", "mac")


def show(visit: Visit) -> Page | Download:
    """Show the wiring, of all switches or of one."""
    wanted = visit.asked("switch").lower()
    links, more = _links(visit)
    if wanted:
        links = [link for link in links if wanted in link["switch"]]
    links.sort(key=lambda link: (natural(link["switch"]), natural(link["port"]), link["machine"]))
    if visit.asked("format") == "csv":
        return Download(name="wiring.csv", body=_csv(links), media="text/csv; charset=utf-8")
    switches: dict[str, list[dict[str, Any]]] = {}
    for link in links[:_SHOWN]:
        switches.setdefault(link["switch"], []).append(link)
    shared = _shared(links)
    data = {
        "switches": [{"name": name, "links": found} for name, found in switches.items()],
        "shared": shared,
        "total": len(links),
        "cut": len(links) > _SHOWN,
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
    return visit.context.store.read(lambda tx: tx.search_index.some(uuids, ("nic",)))


def _shared(links: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return ports at which several machines claim to be: a cable was moved, or a switch between them hides LLDP."""
    behind: dict[tuple[str, str], set[str]] = {}
    for link in links:
        if link["port"]:
            behind.setdefault((link["switch"], link["port"]), set()).add(link["machine"])
    return [
        {"switch": switch, "port": port, "machines": sorted(machines)[:10]}
        for (switch, port), machines in behind.items()
        if len(machines) > 1
    ][:50]


def _csv(links: list[dict[str, str]]) -> bytes:
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(_COLUMNS)
    writer.writerows([values.spreadsheet_cell(link[name]) for name in _COLUMNS] for link in links)
    return output.getvalue().encode("utf-8", "replace")
