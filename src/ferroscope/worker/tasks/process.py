"""Process what the ramdisk sent, or process stored data again: hooks on copies, nothing else.

Their changes, the plugin data and the new state are committed together by the loop, so a worker
that is killed in here leaves nothing behind and the request is simply run again.
"""

from __future__ import annotations

import msgspec

from ferroscope.domain.model import Port
from ferroscope.domain.outcome import Fail, Next, Outcome
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import Event
from ferroscope.hooks.errors import HookError
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.ports.store import Part, Query, Transaction
from ferroscope.worker import out_of_band
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly


class ProcessTask:
    """The task of ``continue`` and ``reapply``."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __call__(self, context: TaskContext) -> Outcome:
        """Run the hooks; a failure is the inspection's, with the hook's reason."""
        ident = context.request.inspection or ""
        parts, context.ports = context.store.read(lambda tx: self._load(tx, ident, context.node.uuid))
        if "inventory" not in parts:
            return Fail(Reason.DATA_MISSING, "no data is stored for this inspection")
        inventory = msgspec.json.decode(parts["inventory"])
        unprocessed = msgspec.json.decode(parts.get("unprocessed", b"{}"))
        from_bmc = out_of_band.stored(parts)
        if from_bmc is not None:
            unprocessed |= {
                out_of_band.KEY: from_bmc,
                out_of_band.HARDWARE: out_of_band.beside(inventory, from_bmc),
            }
        try:
            plugin_data = self._pipeline.run(context, inventory, unprocessed, owned=True)
            context.parts["plugin_data"] = encode(plugin_data)
        except HookError as exc:
            if context.request.event is Event.CONTINUE:
                power_off_quietly(context)
            return Fail(exc.reason, str(exc))
        context.note("processed", f"processed by the hooks {', '.join(self._pipeline.names)}")
        return Next(Event.FINISH)

    def _load(self, tx: Transaction, inspection: str, node: str) -> tuple[dict[Part, bytes], list[Port]]:
        """Read all that hooks work on at one moment."""
        parts = tx.data.load(inspection, ("inventory", "unprocessed", "plugin_data"))
        return parts, list(tx.ports.list(Query(filters={"node": node})))
