"""Power commands of operators: on, off, reboot, and their soft forms, which leave the shutdown to the operating system.

An operating system may take minutes to shut down. No worker thread waits for it: the request goes back to the queue
between two looks at the machine, with the time of the command in its progress. One that ignores the command is not
forced: that would be another command, which its operator may give meanwhile or afterwards.
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
from ferroscope.core.boot import disables_power_off
from ferroscope.core.delivery import Done, Drop, Fail, Outcome, Retry
from ferroscope.core.reasons import Reason
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.boot import ensure_power
from ferroscope.worker.restart import (
    is_on,
    observed_before_reboot,
    reboot_and_look,
    shows_no_restart,
)
from ferroscope.worker.services import Services

# Seconds that a power command may wait, whatever its caller asks for; a hard one occupies a thread.
MAX_TIMEOUT_SECONDS: Final = 3600.0
LONGEST_HARD: Final = 600.0

# Intents.
_ON_AGAIN: Final = "power on after soft power off"
_OFF_IN_RESTART: Final = "off within soft rebooting"

# Seconds between two looks at a machine that shuts down; the first ones are closer together.
_SHORTEST_LOOK: Final = 1.0
_LONGEST_LOOK: Final = 10.0


def set_power(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Bring the machine to the payload's ``target``, a power state or a reboot, within its ``timeout`` in seconds."""
    target = str(attempt.request.payload.get("target", ""))
    timeout = attempt.request.payload.get("timeout")
    if _is_overtaken(attempt, target):
        return Drop(Reason.STALE_REQUEST, f"{target}: another power command was sent meanwhile")
    try:
        return _set(
            attempt, journal, services, target, None if timeout is None else min(float(timeout), MAX_TIMEOUT_SECONDS)
        )
    except BmcError as exc:
        if exc.transient:
            raise
        # In the words of the Bare Metal service.
        return Fail(exc.reason, f"Failed to change power state to '{RESULTS.get(target)}' by '{target}': {exc}")


def _is_overtaken(attempt: Attempt, target: str) -> bool:
    """Whether another command has ended this one, which was waiting: the API no longer shows its result as expected.

    Without this, a machine that is powered off during a soft reboot would be powered on again.
    """
    waits = attempt.has_intended(SOFT_POWER_OFF) or attempt.has_intended(SOFT_REBOOT)
    return waits and attempt.before.target_power_state != RESULTS.get(target)


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
    if before is Power.CHANGING and not attempt.has_intended(target):
        raise unsettled(target, before)
    if before is not Power.OFF and not attempt.has_intended(target):
        attempt.command(partial(driver.soft_power_off, node))
        journal.note(target, "asked the operating system to shut down")
        # After the command: whoever finds no intent asks again, which does no harm.
        attempt.intend(target, journal)
        node.power_state = Power.OFF  # all that a driver without a BMC can know
    node.power_state = driver.get_power(node).published
    if node.power_state == Power.OFF:
        node.target_power_state = None
        return None
    seconds = _patience(services, timeout)
    if (look := _next_look(attempt, journal, services, target, seconds)) is None:
        message = f"Failed to set node power state to {Power.OFF}: it was not within {seconds:g} s"
        raise BmcError(message, transient=False, reason=Reason.POWER_FAILED)
    return Retry(look, Reason.POWER_FAILED, "waiting for the operating system to shut down", counted=False)


def _patience(services: Services, timeout: float | None) -> float:
    return services.settings.drivers.soft_power_off_timeout if timeout is None else timeout


def _next_look(attempt: Attempt, journal: Journal, services: Services, intent: str, seconds: float) -> float | None:
    """Return in how many seconds to look again at a machine that was commanded; None if its ``seconds`` are over."""
    now = services.store.read(lambda tx: tx.now)
    passed: float = now - attempt.progress[intent]["at"]
    if passed < 0:  # the database's clock was set back: count anew
        attempt.intend(intent, journal, seen=attempt.progress[intent])
        passed = 0.0
    if passed >= seconds:
        return None
    return min(max(passed / 4, _SHORTEST_LOOK), _LONGEST_LOOK, seconds - passed)


def _soft_reboot(attempt: Attempt, journal: Journal, services: Services, timeout: float | None) -> Outcome:
    """Have the operating system restart the machine; if the BMC cannot ask for that, shut it down and power it on."""
    if attempt.has_intended(_ON_AGAIN):
        ensure_power(attempt, journal, services, Power.ON)
        return Done()
    if not attempt.has_intended(SOFT_POWER_OFF) and _restarts(attempt, journal):
        if (waiting := _restart_awaited(attempt, journal, services, _patience(services, timeout))) is not None:
            return waiting
        ensure_power(attempt, journal, services, Power.ON)
        return Done()
    if (waiting := _soft_power_off(attempt, journal, services, timeout)) is not None:
        return waiting
    attempt.intend(_ON_AGAIN, journal)
    ensure_power(attempt, journal, services, Power.ON)
    return Done()


def _restarts(attempt: Attempt, journal: Journal) -> bool:
    """Whether the operating system was asked to restart: once, and only on a machine that is on."""
    driver, node = attempt.driver(), attempt.node
    if attempt.has_intended(SOFT_REBOOT):
        return True
    if not isinstance(driver, SoftReboot) or (power := driver.get_power(node)) is Power.OFF:
        return False
    node.power_state = power.published
    if not power.settled:
        raise unsettled(SOFT_REBOOT, power)
    before = observed_before_reboot(attempt)
    if not shows_no_restart(attempt, before):  # then it would prove nothing afterwards
        before["marks"] = {}
    try:
        attempt.command(partial(driver.soft_reboot, node))
    except BmcError as exc:
        if exc.reason is not Reason.BMC_REFUSED:
            raise
        journal.note(
            SOFT_REBOOT,
            f"the BMC cannot restart the operating system and shuts it down instead: {exc}",
            reason=exc.reason,
        )
        return False
    journal.note(SOFT_REBOOT, "asked the operating system to restart")
    attempt.intend(SOFT_REBOOT, journal, seen=before)
    return True


def _restart_awaited(attempt: Attempt, journal: Journal, services: Services, seconds: float) -> Retry | None:
    """Return None if the machine was restarted, or stays off, as far as its BMC shows that; else ``Retry``.

    OpenBMC, for one, shows a machine as off for seconds while its operating system restarts.
    """
    before = {"marks": {}} | attempt.progress[SOFT_REBOOT]
    power = attempt.driver().get_power(attempt.node)
    attempt.node.power_state = power.published
    try:
        ignored = power not in (Power.OFF, Power.CHANGING) and shows_no_restart(attempt, before)
    except BmcError as exc:
        if not exc.transient or exc.waits:
            raise
        ignored = True  # while it restarts, its BMC may have no answer
    if not ignored:
        return None if power is Power.ON else _wait_until_on(attempt, journal, services)
    if (look := _next_look(attempt, journal, services, SOFT_REBOOT, seconds)) is None:
        message = (
            "the BMC accepted the restart of the operating system, but the machine did not restart: "
            f"{seconds:g} s later its boot progress is unchanged"
        )
        raise BmcError(message, transient=False, reason=Reason.NOT_RESTARTED)
    return Retry(look, Reason.NOT_RESTARTED, "waiting for the operating system to restart", counted=False)


def _wait_until_on(attempt: Attempt, journal: Journal, services: Services) -> Retry | None:
    if not attempt.has_intended(_OFF_IN_RESTART):
        attempt.intend(_OFF_IN_RESTART, journal)
    look = _next_look(attempt, journal, services, _OFF_IN_RESTART, services.settings.drivers.power_timeout)
    message = "waiting until the restarted machine is on"
    return None if look is None else Retry(look, Reason.NOT_RESTARTED, message, counted=False)
