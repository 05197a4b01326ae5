"""Power commands of operators: on, off, reboot, and their soft forms, which leave the shutdown to the operating system.

An operating system may take minutes to shut down. No worker thread waits for it: the request goes back to the queue
between two looks at the power state, with the time of the command in its progress.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ferroscope.contracts.bmc import (
    REBOOT,
    RESULTS,
    SOFT_POWER_OFF,
    SOFT_REBOOT,
    Power,
    SoftPower,
    SoftReboot,
    unsettled,
)
from ferroscope.contracts.errors import BmcError
from ferroscope.core.delivery import Done, Fail, Outcome, Retry
from ferroscope.core.reasons import Reason
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.boot import ensure_power
from ferroscope.worker.journal import Journal
from ferroscope.worker.restart import disables_power_off, is_on, reboot_and_look
from ferroscope.worker.services import Services

# Seconds that a power command may wait, whatever its caller asks for; a hard one occupies a thread.
LONGEST: Final = 3600.0
LONGEST_HARD: Final = 600.0

# Intents.
_ON_AGAIN: Final = "power on after soft power off"

# Seconds between two looks at a machine that shuts down; the first ones are closer together.
_SHORTEST_LOOK: Final = 1.0
_LONGEST_LOOK: Final = 10.0


def set_power(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Bring the machine to the payload's ``target``, a power state or a reboot, within its ``timeout`` in seconds."""
    target = str(attempt.request.payload.get("target", ""))
    timeout = attempt.request.payload.get("timeout")
    try:
        return _set(attempt, journal, services, target, None if timeout is None else min(float(timeout), LONGEST))
    except BmcError as exc:
        if exc.transient:
            raise
        # In the words of the Bare Metal service.
        return Fail(exc.reason, f"Failed to change power state to '{RESULTS.get(target)}' by '{target}': {exc}")


def _set(attempt: Attempt, journal: Journal, services: Services, target: str, timeout: float | None) -> Outcome:
    if target == SOFT_POWER_OFF:
        return _soft_power_off(attempt, journal, services, timeout) or Done()
    if target == SOFT_REBOOT:
        return _soft_reboot(attempt, journal, services, timeout)
    hard = None if timeout is None else min(timeout, LONGEST_HARD)
    if target != REBOOT:
        ensure_power(attempt, journal, services, Power.ON if target == Power.ON else Power.OFF, timeout=hard)
    elif disables_power_off(attempt.node) and is_on(attempt, "the reboot"):
        reboot_and_look(attempt, journal, services)
    else:
        ensure_power(attempt, journal, services, Power.OFF, timeout=hard)
        ensure_power(attempt, journal, services, Power.ON, timeout=hard)
    return Done()


def _soft_power_off(attempt: Attempt, journal: Journal, services: Services, timeout: float | None) -> Retry | None:
    """Ask for a shutdown once; return None if the machine is off, ``Retry`` as long as there is time."""
    driver, node, target = attempt.driver(), attempt.node, SOFT_POWER_OFF
    if not isinstance(driver, SoftPower):
        message = f"The driver {node.driver} does not support the power state, {target}"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    if disables_power_off(node):
        raise BmcError(
            "power off refused: disable_power_off is set on the node",
            transient=False,
            reason=Reason.POWER_OFF_DISABLED,
        )
    before = driver.get_power(node)
    if before is Power.CHANGING and not attempt.intended(target):
        raise unsettled(target, before)
    if before is not Power.OFF and not attempt.intended(target):
        attempt.command(partial(driver.soft_power_off, node))
        journal.note(target, "asked the operating system to shut down")
        # After the command: whoever finds no intent asks again, which does no harm.
        attempt.intend(target, journal)
        node.power_state = Power.OFF  # all that a driver without a BMC can know
    node.power_state = driver.get_power(node).published
    if node.power_state == Power.OFF:
        node.target_power_state = None
        return None
    seconds = services.settings.drivers.soft_power_off_timeout if timeout is None else timeout
    now = services.store.read(lambda tx: tx.now)
    passed = now - attempt.progress[target]["at"]
    if passed < 0:  # the database's clock was set back: count anew
        attempt.intend(target, journal)
        passed = 0.0
    if passed >= seconds:
        message = f"Failed to set node power state to {Power.OFF}: it was not within {seconds:g} s"
        raise BmcError(message, transient=False, reason=Reason.POWER_FAILED)
    look = min(max(passed / 4, _SHORTEST_LOOK), _LONGEST_LOOK, seconds - passed)
    return Retry(look, Reason.POWER_FAILED, "waiting for the operating system to shut down", counted=False)


def _soft_reboot(attempt: Attempt, journal: Journal, services: Services, timeout: float | None) -> Outcome:
    """Have the operating system restart the machine; if the BMC cannot ask for that, shut it down and power it on."""
    if attempt.intended(_ON_AGAIN):
        ensure_power(attempt, journal, services, Power.ON)
        return Done()
    if not attempt.intended(SOFT_POWER_OFF) and _restarted(attempt, journal):
        ensure_power(attempt, journal, services, Power.ON)
        return Done()
    if (waiting := _soft_power_off(attempt, journal, services, timeout)) is not None:
        return waiting
    attempt.intend(_ON_AGAIN, journal)
    ensure_power(attempt, journal, services, Power.ON)
    return Done()


def _restarted(attempt: Attempt, journal: Journal) -> bool:
    """Whether the operating system was asked to restart: once, and only on a machine that is on."""
    driver, node = attempt.driver(), attempt.node
    if not isinstance(driver, SoftReboot) or (power := driver.get_power(node)) is Power.OFF:
        return False
    if attempt.intended(SOFT_REBOOT):
        return True
    if not power.settled:
        raise unsettled(SOFT_REBOOT, power)
    try:
        attempt.command(partial(driver.soft_reboot, node))
    except BmcError as exc:
        if exc.reason is not Reason.BMC_REFUSED:
            raise
        journal.note(
            SOFT_REBOOT,
            f"the BMC cannot restart the operating system, so it is shut down instead: {exc}",
            reason=exc.reason,
        )
        return False
    journal.note(SOFT_REBOOT, "asked the operating system to restart")
    attempt.intend(SOFT_REBOOT, journal)
    return True
