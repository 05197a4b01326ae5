"""Commands of operators to a machine that is not being inspected: verify, power, boot device.

They leave the inspection's state alone; their failure is the node's ``last_error``.
"""

from __future__ import annotations

from functools import partial

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.core.delivery import Done, Fail, Outcome
from ferroscope.core.reasons import Reason
from ferroscope.worker.bmc_addresses import resolve
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import ensure_power
from ferroscope.worker.staying_on import reboot, stays_on

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
