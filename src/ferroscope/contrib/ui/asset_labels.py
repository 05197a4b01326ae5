"""Labels to print and stick on machines: name, model and serial number, and a QR code that leads to the page."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from ferroscope.api.errors import BadRequestError, MissingError
from ferroscope.contrib.ui.machine_list import Wanted, ranked, views
from ferroscope.contrib.ui.page import Page, Visit
from ferroscope.core import qr
from ferroscope.core.values import is_uuid
from ferroscope.hardware import names

# Labels of one page.
_MOST: Final = 100
_BORDER: Final = 4


def show(visit: Visit) -> Page:
    """Show the labels of a machine, or of those that match a search."""
    chosen = [uuid for uuid in visit.query.get("node", []) if is_uuid(uuid)]
    found = chosen or ranked(visit, Wanted.of(visit.asked))
    labels = [_label(visit, node) for node in views(visit, found[:_MOST])]
    if not labels:
        raise MissingError("No matching machines.")
    data = {"labels": labels, "more": max(0, len(found) - _MOST)}
    return Page(template="labels.html", title="Asset labels", data=data)


def _label(visit: Visit, node: dict[str, Any]) -> dict[str, Any]:
    hardware = node.get("hardware") or {}
    known = hardware if isinstance(hardware, dict) and "content" not in hardware else {}
    model = names.model(str(known["product"])) if known.get("product") else ""
    return {
        "uuid": node["uuid"],
        "name": node["name"] or node["uuid"],
        "model": f"{known.get('vendor') or ''} {model}".strip(),
        "serial": known.get("serial") or "",
        **drawn(f"{visit.caller.url}/ui/machines/{node['uuid']}"),
    }


def drawn(text: str) -> dict[str, Any]:
    """Return the QR code of a text as the path of a drawing, and the size of that."""
    try:
        rows = qr.encode(text)
    except qr.TooLongError as exc:
        raise BadRequestError(f"The address of the page is too long for a label: {exc}.") from None
    path, at = [], 0
    for y, row in enumerate(rows):
        at = 0
        for dark, run in groupby(row):
            width = len(list(run))
            if dark:
                path.append(f"M{at + _BORDER} {y + _BORDER}h{width}v1h-{width}z")
            at += width
    return {"path": "".join(path), "size": len(rows) + 2 * _BORDER}
