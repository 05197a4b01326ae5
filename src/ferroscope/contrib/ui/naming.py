"""Names of machines for people: the name, else the serial number of a new machine, else the UUID."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ferroscope.contracts.store import Query
from ferroscope.contrib.ui.page import Visit
from ferroscope.db import Transaction
from ferroscope_client.hardware.names import suggestion

_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
# The most UUIDs in the texts of a page that are looked up.
_MAX_NAMED: Final = 100


def label(node: Mapping[str, Any]) -> str:
    """Return the name of a node of the API; a node in the inbox has its serial number."""
    hardware = node.get("hardware")
    serial = hardware.get("serial") if isinstance(hardware, dict) else None
    return str(node["name"] or (node.get("inbox") and suggestion(serial)) or node["uuid"])


def names(tx: Transaction, uuids: Iterable[str]) -> dict[str, str]:
    """Return the names of these nodes by UUID."""
    wanted = tuple(dict.fromkeys(uuids))
    named_nodes = tx.nodes.list(Query(filters={"uuid": wanted})) if wanted else []
    called = {node.uuid: node.name or suggestion(node.hardware.get("serial")) for node in named_nodes}
    return {uuid: called.get(uuid) or uuid for uuid in wanted}


def status(visit: Visit) -> dict[str, Any]:
    """Return the status of the service, with names of machines in its problems."""
    view: dict[str, Any] = visit.call("GET /v1/status")
    mentioned = [uuid for problem in view["problems"] for uuid in _UUID.findall(problem["summary"])][:_MAX_NAMED]
    called = visit.context.data.store.read(lambda tx: names(tx, mentioned)) if mentioned else {}
    problems = [
        problem | {"summary": _UUID.sub(lambda match: called.get(match[0], match[0]), problem["summary"])}
        for problem in view["problems"]
    ]
    return view | {"problems": problems}
