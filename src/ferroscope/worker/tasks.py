"""One task per event: what the worker does when the machine has taken it.

A task gets its context, has effects on the machine and on the context's copies, and returns an
outcome; it commits nothing itself. Automatic events without a task (``wait``) only move the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.core.delivery import Done, Fail, Outcome
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MACHINE, Event, State
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.worker.bmc_addresses import resolve
from ferroscope.worker.boot import ensure_power, power_off_quietly, reboot, stays_on
from ferroscope.worker.context import TaskContext
from ferroscope.worker.process import ProcessTask, RuleStep
from ferroscope.worker.refused_calls import amended
from ferroscope.worker.start import PxeFilterWait, StartTask
from ferroscope.worker.throttle import RebootThrottle

# Abort: power the machine off and end its inspection in error, by the operator's will; or for a failure.

_REASONS = frozenset(Reason)


def abort(context: TaskContext) -> Outcome:
    """Power off where an inspection was under way, not where stored data was; in any case end it."""
    _power_off(context)
    return Fail(Reason.ABORTED, "the inspection was aborted")


def fail(context: TaskContext) -> Outcome:
    """End it as the payload says: ``reason`` and ``message`` are those of what failed where no BMC is asked."""
    _power_off(context)
    said = str(context.request.payload.get("reason"))
    reason = Reason(said) if said in _REASONS else Reason.INTERNAL
    return Fail(reason, str(context.request.payload.get("message", "the inspection failed")))


def _power_off(context: TaskContext) -> None:
    if context.before.state in MACHINE:
        power_off_quietly(context)


# Commands of operators to a machine that is not being inspected: verify, power, boot device.
#
# They leave the inspection's state alone; their failure is the node's ``last_error``.

_REBOOTS = ("rebooting", "soft rebooting")


def verify(context: TaskContext) -> Outcome:
    """Check driver_info and ask the BMC for its power state."""
    driver = context.driver()
    wrong = driver.validate(context.node)
    if wrong:
        return Fail(Reason.DRIVER_INFO_INVALID, wrong)
    context.node.power_state = driver.get_power(context.node)
    context.bmc_addresses = resolve(context.node, seconds=context.settings.drivers.command_timeout)
    context.note("verified", f"the BMC answers: {context.node.power_state}")
    return Done()


def set_power(context: TaskContext) -> Outcome:
    """Bring the machine to payload ``target``: a power state, soft or not, or a reboot."""
    target = str(context.request.payload.get("target", ""))
    if target in _REBOOTS and stays_on(context.node) and context.driver().get_power(context.node) is Power.ON:
        reboot(context)
    elif target in _REBOOTS:
        ensure_power(context, Power.OFF)
        ensure_power(context, Power.ON)
    else:
        ensure_power(context, Power.ON if target == Power.ON else Power.OFF)
    return Done()


def set_boot_device(context: TaskContext) -> Outcome:
    """Set payload ``boot_device``, once or ``persistent``."""
    device = BootDevice(context.request.payload["boot_device"])
    persistent = bool(context.request.payload.get("persistent", False))
    bmc = context.driver()
    context.command(partial(bmc.set_boot_device, context.node, device, persistent=persistent))
    context.note("boot device", f"boots from {device}{' always' if persistent else ' once'}")
    return Done()


# Delete: the node is no longer tracked. The machine is left as it is; nobody asked us to touch it.


def delete(_context: TaskContext) -> Outcome:
    """The node, with everything that belongs to it, goes when this is settled."""
    return Done()


# Finish: the data is safe, so power the machine off. A BMC that does not obey fails nothing.


def finish(context: TaskContext) -> Outcome:
    """Power off after an inspection; processing stored data again never touches the machine."""
    if context.before.state is State.PROCESSING:
        power_off_quietly(context)
    return Done()


# Time-out: the BMC, the machine or a hook had its time, and more.


def time_out(context: TaskContext) -> Outcome:
    """Power off and fail, saying who took too long at what."""
    power_off_quietly(context)
    return amended(context, _reason(context))


def _reason(context: TaskContext) -> Fail:
    """Return the failure of an inspection whose present phase has taken too long."""
    seconds = f"{context.settings.inspector.timeout:g} s"
    if context.before.state is State.STARTING:
        return Fail(Reason.START_TIMEOUT, f"the BMC did not start the machine within {seconds}")
    if context.before.state is State.WAITING:
        since = context.inspection.waiting_since if context.inspection is not None else None
        when = "" if since is None else f" at {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return Fail(Reason.TIMEOUT, f"no callback within {seconds} since the power-on{when}")
    return Fail(Reason.PROCESSING_TIMEOUT, f"processing took longer than {seconds}")


def build(
    pipeline: Pipeline, throttle: RebootThrottle, pxe_filter: PxeFilterWait, rules: RuleStep | None = None
) -> Mapping[Event, Callable[[TaskContext], Outcome]]:
    """Return the task of each event that has one."""
    run_hooks = ProcessTask(pipeline, rules or RuleStep())
    return {
        Event.INSPECT: StartTask(throttle, pxe_filter),
        Event.CONTINUE: run_hooks,
        Event.REAPPLY: run_hooks,
        Event.FINISH: finish,
        Event.FAIL: fail,
        Event.ABORT: abort,
        Event.TIMEOUT: time_out,
        Event.DELETE: delete,
        Event.VERIFY: verify,
        Event.SET_POWER: set_power,
        Event.SET_BOOT_DEVICE: set_boot_device,
    }
