"""Process what the ramdisk sent, or process stored data again: hooks and rules on copies, nothing else.

Their changes, the plugin data and the new state are committed together by the loop, so a worker
that is killed in here leaves nothing behind and the request is simply run again. No BMC is asked
here: who fails lets the loop ask for it (event ``fail``), for nothing that computes waits for a BMC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ferroscope.contracts.data import Part
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import json_safety
from ferroscope.core.delivery import Fail, Next, Outcome
from ferroscope.core.model import Port, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.rules.data import RuleFailedError
from ferroscope.rules.engine import RuleSet
from ferroscope.worker import out_of_band
from ferroscope.worker.context import TaskContext
from ferroscope.worker.rules import RuleStep


class ProcessTask:
    """The task of ``continue`` and ``reapply``."""

    def __init__(self, pipeline: Pipeline, rules: RuleStep) -> None:
        self._pipeline = pipeline
        self._rules = rules

    def __call__(self, context: TaskContext) -> Outcome:
        """Run the hooks, then the rules; a failure is the inspection's, with the reason of the hook or the rule."""
        ident = context.request.inspection or ""
        parts, context.ports, rules = context.store.read(lambda tx: self._load(tx, ident, context.node.uuid))
        if "inventory" not in parts:
            return Fail(Reason.DATA_MISSING, "no data is stored for this inspection")
        try:
            inventory = json_safety.decode(parts["inventory"])
            unprocessed = json_safety.decode(parts.get("unprocessed", b"{}"))
        except json_safety.TooManyContainersError as exc:
            return Fail(Reason.DATA_TOO_LARGE, f"the inspection data is not processed: {exc}")
        from_bmc = out_of_band.stored(parts)
        if from_bmc is not None:
            unprocessed |= {
                out_of_band.KEY: from_bmc,
                out_of_band.HARDWARE: out_of_band.beside(inventory, from_bmc),
            }
        try:
            plugin_data = self._pipeline.run(context, inventory, unprocessed, owned=True, begins=context.begins)
            context.begins("", "the rules")
            with _held_notes(context):
                self._rules.apply(context, rules, inventory, plugin_data)
            context.parts["plugin_data"] = encode(plugin_data)
            context.learn(inventory, plugin_data)
        except HookError as exc:
            return Fail(exc.reason, str(exc))
        except RuleFailedError as exc:
            return Fail(exc.reason, exc.message)
        context.note("processed", f"processed by the hooks {', '.join(self._pipeline.names)}")
        return Next(Event.FINISH)

    def _load(self, tx: Transaction, inspection: str, node: str) -> tuple[dict[Part, bytes], list[Port], RuleSet]:
        """Read all that hooks and rules work on, and the rules, at one moment."""
        parts = tx.data.load_later(inspection, ("inventory", "unprocessed", "out_of_band"))
        ports = tx.ports.list_later(Query(filters={"node": node}))
        rules = self._rules.current(tx)
        return parts.get(), list(ports.get()), rules


@contextlib.contextmanager
def _held_notes(context: TaskContext) -> Iterator[None]:
    """Keep the hooks' notes back until the rules have agreed; where they refuse, only warnings have come to pass."""
    held, context.notes = context.notes, []
    try:
        yield
    except RuleFailedError:
        held = [(when, entry) for when, entry in held if entry.severity is not Severity.INFO]
        raise
    finally:
        context.notes = held + context.notes
