"""One task per event: what the worker does when the machine has taken it.

A task gets its context, has effects on the machine and on the context's copies, and returns an
outcome; it commits nothing itself. Automatic events without a task (``wait``) only move the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ferroscope.core.delivery import Outcome
from ferroscope.core.states import Event
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.worker.boot_gate import BootGate
from ferroscope.worker.context import TaskContext
from ferroscope.worker.rules import RuleStep
from ferroscope.worker.tasks import abort, commands, delete, finish, process, start, timeout
from ferroscope.worker.throttle import RebootThrottle


def build(
    pipeline: Pipeline, throttle: RebootThrottle, gate: BootGate, rules: RuleStep | None = None
) -> Mapping[Event, Callable[[TaskContext], Outcome]]:
    """Return the task of each event that has one."""
    run_hooks = process.ProcessTask(pipeline, rules or RuleStep())
    return {
        Event.INSPECT: start.StartTask(throttle, gate),
        Event.CONTINUE: run_hooks,
        Event.REAPPLY: run_hooks,
        Event.FINISH: finish.finish,
        Event.FAIL: abort.fail,
        Event.ABORT: abort.abort,
        Event.TIMEOUT: timeout.time_out,
        Event.DELETE: delete.delete,
        Event.VERIFY: commands.verify,
        Event.SET_POWER: commands.set_power,
        Event.SET_BOOT_DEVICE: commands.set_boot_device,
    }
