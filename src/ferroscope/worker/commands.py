"""Commands of operators. They do not change the inspection's state; their failure is the node's ``last_error``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from ferroscope.contracts import bmc
from ferroscope.contracts.bmc import REBOOT, RESULTS, SOFT_POWER_OFF, SOFT_REBOOT, BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core import bmc_password
from ferroscope.core.bmc_password import Record
from ferroscope.core.boot import disables_power_off, keeps_boot_order
from ferroscope.core.delivery import TRIAL, Done, Drop, Fail, Outcome, Retry
from ferroscope.core.model import Node
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.machine import ensure_power, learn_drives, refuse_power_off
from ferroscope.worker.restart import is_on, observed_before_reboot, reboot_and_look, shows_no_restart
from ferroscope.worker.start import learn_machine, resolve_addresses
from ferroscope_client.core import passwords
from ferroscope_client.core.passwords import PasswordProgress, is_reference
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import MASK, is_too_short

T = TypeVar("T")

_ANSWER_TEXT: Final = {
    Power.CHANGING: "the machine's power state is changing",
    Power.UNKNOWN: "it does not report whether the machine is on or off",
}


def verify(attempt: Attempt) -> Outcome:
    """Check driver_info and ask the BMC for the power state."""
    driver = attempt.driver()
    problem = driver.validate(attempt.node)
    if problem:
        return Fail(problem.reason if isinstance(problem, bmc.Problem) else Reason.DRIVER_INFO_INVALID, str(problem))
    try:
        power = driver.get_power(attempt.node)
    except BmcError as exc:
        if exc.transient and attempt.request.payload.get(TRIAL):  # an operator waits for this answer
            return Fail(exc.reason, str(exc))
        raise
    attempt.node.power_state = power.published
    attempt.journal.bmc_addresses = resolve_addresses(attempt.node, seconds=attempt.settings.drivers.command_timeout)
    learn_machine(attempt)
    _learn_boot_device(attempt)
    learn_drives(attempt)
    attempt.note("verified", f"the BMC responds: {_ANSWER_TEXT.get(power, str(power))}")
    return Done()


def _learn_boot_device(attempt: Attempt) -> None:
    """Store the boot device that the BMC reports; operators see it until they set one."""
    try:
        device, persistent = attempt.driver().get_boot_device(attempt.node)
    except BmcError as exc:
        attempt.warn("boot device", f"cannot read the boot device: {exc}", reason=exc.reason)
        return
    attempt.node.internal["reported_boot_device"] = {"boot_device": device, "persistent": persistent}


def set_boot_device(attempt: Attempt) -> Outcome:
    """Set the payload's ``boot_device``, for the next boot or ``persistent``."""
    device = BootDevice(attempt.request.payload["boot_device"])
    persistent = bool(attempt.request.payload.get("persistent", False))
    if keeps_boot_order(attempt.node):
        attempt.note("boot device", f"not set to {device}: management_interface leaves the boot order alone")
        return Done()
    attempt.command(partial(attempt.driver().set_boot_device, attempt.node, device, persistent=persistent))
    attempt.note("boot device", f"set to {device} {'persistently' if persistent else 'for the next boot'}")
    return Done()


# The power: on, off, reboot, and the soft forms, which leave the shutdown to the operating system. That may take
# minutes, and no thread waits for it: the request goes back to the queue between two looks at the machine, with the
# time of the command in its progress. A machine that ignores the command is not forced: that would be another command,
# which its operator may give meanwhile or afterwards.

# The longest wait of a power command that a caller can ask for. A hard one occupies a thread.
MAX_TIMEOUT_SECONDS: Final = 3600.0
MAX_HARD_SECONDS: Final = 600.0
# Intents.
_ON_AGAIN: Final = "power on after soft power off"
_OFF_IN_RESTART: Final = "off within soft rebooting"
# Seconds between two looks at a machine that shuts down; the first ones are closer together.
_MIN_LOOK_SECONDS: Final = 1.0
_MAX_LOOK_SECONDS: Final = 10.0


def set_power(attempt: Attempt) -> Outcome:
    """Bring the machine to the payload's ``target``, a power state or a reboot, within its ``timeout`` in seconds."""
    target = str(attempt.request.payload.get("target", ""))
    timeout = attempt.request.payload.get("timeout")
    if _is_overtaken(attempt, target):
        return Drop(Reason.STALE_REQUEST, f"{target}: another power command was sent meanwhile")
    try:
        return _command_power(attempt, target, None if timeout is None else min(float(timeout), MAX_TIMEOUT_SECONDS))
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


def _command_power(attempt: Attempt, target: str, timeout: float | None) -> Outcome:
    patience = attempt.settings.drivers.soft_power_off_timeout if timeout is None else timeout
    if target == SOFT_POWER_OFF:
        return _soft_power_off(attempt, patience) or Done()
    if target == SOFT_REBOOT:
        return _soft_reboot(attempt, patience)
    hard = None if timeout is None else min(timeout, MAX_HARD_SECONDS)
    if target != REBOOT:
        ensure_power(attempt, Power.ON if target == Power.ON else Power.OFF, timeout=hard)
    elif disables_power_off(attempt.node) and is_on(attempt, "the reboot"):
        reboot_and_look(attempt)
    else:
        ensure_power(attempt, Power.OFF, timeout=hard)
        ensure_power(attempt, Power.ON, timeout=hard)
    return Done()


def _soft_power_off(attempt: Attempt, seconds: float) -> Retry | None:
    """Ask for a shutdown once; return None if the machine is off, ``Retry`` as long as there is time."""
    driver, node, target = attempt.driver(), attempt.node, SOFT_POWER_OFF
    if not isinstance(driver, bmc.SoftPower):
        message = f"The driver {node.driver} does not support the power state, {target}"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    refuse_power_off(node)
    before = driver.get_power(node)
    if before is Power.CHANGING and not attempt.has_intended(target):
        raise bmc.unsettled(target, before)
    if before is not Power.OFF and not attempt.has_intended(target):
        attempt.command(partial(driver.soft_power_off, node))
        attempt.note(target, "asked the operating system to shut down")
        # After the command: an attempt that finds no intent asks again, which does no harm.
        attempt.intend(target)
        node.power_state = Power.OFF  # all that a driver without a BMC can know
    node.power_state = driver.get_power(node).published
    if node.power_state == Power.OFF:
        node.target_power_state = None
        return None
    if (look := _next_look(attempt, target, seconds)) is None:
        message = f"Failed to set node power state to {Power.OFF}: it was not within {seconds:g} s"
        raise BmcError(message, transient=False, reason=Reason.POWER_FAILED)
    return Retry(look, Reason.POWER_FAILED, "waiting for the operating system to shut down", counted=False)


def _next_look(attempt: Attempt, intent: str, seconds: float) -> float | None:
    """Return in how many seconds to look at the commanded machine again; None if its ``seconds`` are over."""
    now = attempt.store.read(lambda tx: tx.now)
    passed: float = now - attempt.progress[intent]["at"]
    if passed < 0:  # the database's clock was set back: count anew
        attempt.intend(intent, seen=attempt.progress[intent])
        passed = 0.0
    if passed >= seconds:
        return None
    return min(max(passed / 4, _MIN_LOOK_SECONDS), _MAX_LOOK_SECONDS, seconds - passed)


def _soft_reboot(attempt: Attempt, seconds: float) -> Outcome:
    """Have the operating system restart the machine; if the BMC cannot ask for that, shut it down and power it on."""
    waiting = None
    if attempt.has_intended(_ON_AGAIN):
        pass
    elif not attempt.has_intended(SOFT_POWER_OFF) and _asked_to_restart(attempt):
        waiting = _await_restart(attempt, seconds)
    elif (waiting := _soft_power_off(attempt, seconds)) is None:
        attempt.intend(_ON_AGAIN)
    if waiting is None:
        ensure_power(attempt, Power.ON)
    return waiting or Done()


def _asked_to_restart(attempt: Attempt) -> bool:
    """Whether the operating system was asked to restart: once, and only on a machine that is on."""
    driver, node = attempt.driver(), attempt.node
    if attempt.has_intended(SOFT_REBOOT):
        return True
    if not isinstance(driver, bmc.SoftReboot) or (power := driver.get_power(node)) is Power.OFF:
        return False
    node.power_state = power.published
    if not power.settled:
        raise bmc.unsettled(SOFT_REBOOT, power)
    before = observed_before_reboot(attempt)
    if not shows_no_restart(attempt, before):  # then it would prove nothing afterwards
        before["marks"] = {}
    try:
        attempt.command(partial(driver.soft_reboot, node))
    except BmcError as exc:
        if exc.reason is not Reason.BMC_REFUSED:
            raise
        message = f"the BMC cannot restart the operating system and shuts it down instead: {exc}"
        attempt.note(SOFT_REBOOT, message, reason=exc.reason)
        return False
    attempt.note(SOFT_REBOOT, "asked the operating system to restart")
    attempt.intend(SOFT_REBOOT, seen=before)
    return True


def _await_restart(attempt: Attempt, seconds: float) -> Retry | None:
    """Return None if its BMC shows that the machine was restarted, or stays off; else ``Retry``.

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
        return None if power is Power.ON else _wait_until_on(attempt)
    if (look := _next_look(attempt, SOFT_REBOOT, seconds)) is None:
        message = (
            "the BMC accepted the restart of the operating system, but the machine did not restart: "
            f"{seconds:g} s later its boot progress is unchanged"
        )
        raise BmcError(message, transient=False, reason=Reason.NOT_RESTARTED)
    return Retry(look, Reason.NOT_RESTARTED, "waiting for the operating system to restart", counted=False)


def _wait_until_on(attempt: Attempt) -> Retry | None:
    if not attempt.has_intended(_OFF_IN_RESTART):
        attempt.intend(_OFF_IN_RESTART)
    look = _next_look(attempt, _OFF_IN_RESTART, attempt.settings.drivers.power_timeout)
    message = "waiting until the restarted machine is on"
    return None if look is None else Retry(look, Reason.NOT_RESTARTED, message, counted=False)


# Changing the password of a BMC: no crash at any point may leave a BMC with an unknown password. The API has stored the
# new password beside the present one before there was a request. From here on:
#
# * The intent is recorded before the BMC gets the new password, so the next attempt asks first which password it has.
# * The new password replaces the stored one only after a login with it. Only a login with the stored one removes it.
# * If neither login succeeds, or the BMC does not answer, both are kept, and an operator resumes the change.
#
# An attempt tries each password at most once, because BMCs lock accounts.

# The key of the payload that says that the BMC may have the new password already.
PROBE: Final = "probe"
_CHANGE_INTENT: Final = "password"
_CHANGE_STEP: Final = "bmc password"


def set_password(attempt: Attempt) -> Outcome:
    """Have the BMC take the password that is pending in ``driver_info``, and keep the one that it accepts."""
    driver, field = _password_driver(attempt)
    pending = bmc_password.pending_field(field)
    if pending not in attempt.node.driver_info:
        return Drop(Reason.STALE_REQUEST, "the new password no longer exists: it was removed, or is already in use")
    change = _Change(attempt, driver, field)
    if why := passwords.problem(change.password):  # what a reference leads to is known here only
        return Fail(Reason.DRIVER_INFO_INVALID, f"the new password cannot be used: {why}")
    sent = attempt.has_intended(_CHANGE_INTENT) or bool(attempt.request.payload.get(PROBE))
    if sent and change.accepts(change.after):
        return change.adopt()
    attempt.intend(_CHANGE_INTENT)
    try:
        change.call(partial(driver.set_password, change.before, change.password))
    except BmcError as exc:
        return change.conclude_refusal(exc, tried=sent)
    return change.adopt()


def _password_driver(attempt: Attempt) -> tuple[bmc.ChangesPassword, str]:
    driver = attempt.driver()
    field = bmc_password.field_of(driver.properties)
    if not isinstance(driver, bmc.ChangesPassword) or field is None:
        message = f"driver {attempt.node.driver} cannot change the password of a BMC"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    return driver, field


class _Change:
    """``before`` and ``after``: the node with the present and with the new password, in plain text, never stored."""

    def __init__(self, attempt: Attempt, driver: bmc.ChangesPassword, field: str) -> None:
        self._attempt = attempt
        self._driver, self._field = driver, field
        self._pending = bmc_password.pending_field(field)
        plain = dict(attempt.with_plain_secrets(attempt.node).driver_info)
        self.password = str(plain.pop(self._pending))
        secrets = (self.password, str(plain.get(field) or ""))
        long_secrets = [secret for secret in secrets if secret and not is_too_short(secret)]
        self._secrets = sorted(long_secrets, key=len, reverse=True)  # one may begin with the other
        self.before: Node = msgspec.structs.replace(attempt.node, driver_info=plain)
        self.after: Node = msgspec.structs.replace(attempt.node, driver_info=plain | {field: self.password})

    def call(self, call: Callable[[], T]) -> T:
        """Call the BMC under the claim; ``BmcError`` without either password."""
        try:
            return self._attempt.command(call)
        except BmcError as exc:
            text = str(exc)
            for secret in self._secrets:
                text = text.replace(secret, MASK)
            exc.args = (text,)
            raise

    def accepts(self, node: Node) -> bool:
        """Whether the BMC accepts the node's password; ``BmcError`` if it does not say."""
        try:
            self.call(partial(self._driver.log_in, node))
        except BmcError as exc:
            if exc.reason is Reason.BMC_CREDENTIALS:
                return False
            raise
        return True

    def adopt(self) -> Done:
        """Store the new password, which is proven, instead of the old one."""
        info = self._attempt.node.driver_info
        stored = info.pop(self._pending)
        info[self._field] = stored if is_reference(stored) else self.password
        self._record(PasswordProgress.CHANGED)
        self._attempt.note(_CHANGE_STEP, "changed: the BMC has accepted a login with the new password")
        return Done()

    def conclude_refusal(self, error: BmcError, *, tried: bool) -> Outcome:
        """Return what follows from a change that did not succeed; ``tried``: the new password was rejected before."""
        if error.reason is Reason.BMC_PASSWORD_UNCLEAR:
            return Fail(error.reason, f"{error}; both passwords are kept")
        if error.reason is Reason.BMC_CREDENTIALS:
            if not tried and self.accepts(self.after):
                return self.adopt()
            message = f"neither the stored password nor the new one is accepted; both are kept: {error}"
            return Fail(Reason.BMC_PASSWORD_UNCLEAR, message)
        if error.transient:
            message = "unclear: both passwords are kept until one of them is proven"
            self._attempt.warn(_CHANGE_STEP, message, reason=error.reason)
            raise error
        if not self.accepts(self.before):
            message = f"the stored password is no longer accepted; both are kept: {error}"
            return Fail(Reason.BMC_PASSWORD_UNCLEAR, message)
        del self._attempt.node.driver_info[self._pending]
        self._record(PasswordProgress.UNCHANGED)
        self._attempt.note(_CHANGE_STEP, "unchanged: the BMC has accepted a login with the stored password")
        return Fail(error.reason, str(error))

    def _record(self, result: PasswordProgress) -> None:
        now = self._attempt.store.read(lambda tx: tx.now)
        self._attempt.node.internal[bmc_password.RECORD] = msgspec.to_builtins(Record(result, now))
