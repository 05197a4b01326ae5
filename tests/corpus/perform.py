"""Run a case through our hooks, as a worker does it."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contracts.store import packed
from ferroscope.core.model import Inspection, Node, Port, Severity
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import encode
from ferroscope_client.core.states import State
from tests.corpus import Case, Outcome
from tests.fast.hooks import runs

PORT_FIELDS = ("pxe_enabled", "physical_network", "local_link_connection", "extra")


def perform(case: Case) -> Outcome:
    """Return what our hooks make of it."""
    inventory, plugin_data = case.whole()
    ports = [runs.port(**fields) for fields in case.ports]
    task = runs.context(ports, dict.fromkeys(case.elsewhere, runs.OTHER), properties=case.properties)
    if case.previous is not None:
        task.store.write(lambda tx: _inspected(tx, task.node, case.previous or {}))
    pipeline = runs.pipeline(case.hooks, **{key: _option(value) for key, value in case.options.items()})
    try:
        data = pipeline.run(task, inventory, plugin_data)
    except HookError as exc:
        return Outcome(error=str(exc.reason), warnings=_warnings(task))
    found = runs.Run(task, data)
    return Outcome(
        properties=found.node.properties,
        ports={mac: _port(port) for mac, port in sorted(found.ports().items())},
        plugin_data=msgspec.json.decode(encode(data)),
        warnings=_warnings(task),
    )


def _option(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _inspected(tx: Any, node: Node, inventory: dict[str, Any]) -> None:
    tx.inspections.add(Inspection(uuid="before", node=node.uuid, state=State.FINISHED, started_at=1.0))
    tx.data.save("before", node.uuid, packed({"inventory": msgspec.json.encode(inventory)}))


def _port(port: Port) -> dict[str, Any]:
    return {name: getattr(port, name) for name in PORT_FIELDS}


def _warnings(task: Any) -> list[str]:
    return [entry.step for _when, entry in task.journal.entries if entry.severity is not Severity.INFO]
