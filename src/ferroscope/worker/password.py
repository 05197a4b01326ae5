"""Changing the password of a BMC, such that no crash at any point leaves one that nobody knows.

The API has stored the new password beside the present one before there was a request. From here on:

* the intent to tell the BMC is recorded before the BMC is told, so whoever continues asks first which one it has;
* the new password replaces the stored one only after a login with it, and is removed only after a login with that;
* where neither login succeeds, or the BMC does not answer, both are kept, and an operator resumes the change.

Each password is tried at most once in an attempt, because BMCs lock accounts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from ferroscope.contracts.bmc import Bmc, ChangesPassword
from ferroscope.contracts.errors import BmcError
from ferroscope.core import bmc_password
from ferroscope.core.bmc_password import PasswordProgress, Record
from ferroscope.core.delivery import Done, Drop, Fail, Outcome
from ferroscope.core.model import Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.secrets import is_reference
from ferroscope.core.values import MASK, is_too_short
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.services import Services

PROBE: Final = "probe"
"""The key of the payload that says that the BMC may have the new password already."""

_INTENT: Final = "password"
_STEP: Final = "bmc password"

T = TypeVar("T")


def set_password(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Have the BMC take the password that is pending in ``driver_info``, and keep the one that it accepts."""
    driver, field = _able(attempt)
    pending = bmc_password.pending_field(field)
    if pending not in attempt.node.driver_info:
        return Drop(Reason.STALE_REQUEST, "the new password no longer exists: it was removed, or is already in use")
    change = _Change(attempt, journal, services, driver, field)
    if why := bmc_password.problem(change.password):  # what a reference leads to is known here only
        return Fail(Reason.DRIVER_INFO_INVALID, f"the new password cannot be used: {why}")
    sent = attempt.has_intended(_INTENT) or bool(attempt.request.payload.get(PROBE))
    if sent and change.accepts(change.after):
        return change.adopt()
    attempt.intend(_INTENT, journal)
    try:
        change.call(partial(driver.set_password, change.before, change.password))
    except BmcError as exc:
        return change.conclude_refusal(exc, tried=sent)
    return change.adopt()


def _able(attempt: Attempt) -> tuple[ChangesPassword, str]:
    driver: Bmc = attempt.driver()
    field = bmc_password.field_of(driver.properties)
    if not isinstance(driver, ChangesPassword) or field is None:
        message = f"driver {attempt.node.driver} cannot change the password of a BMC"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    return driver, field


class _Change:
    """``before`` and ``after``: the node with the present and with the new password, in plain text, never stored."""

    def __init__(
        self, attempt: Attempt, journal: Journal, services: Services, driver: ChangesPassword, field: str
    ) -> None:
        self._attempt, self._journal, self._services = attempt, journal, services
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
        self._journal.note(_STEP, "changed: the BMC has accepted a login with the new password")
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
            self._journal.note(
                _STEP,
                "unclear: both passwords are kept until one of them is proven",
                severity=Severity.WARNING,
                reason=error.reason,
            )
            raise error
        if not self.accepts(self.before):
            message = f"the stored password is no longer accepted; both are kept: {error}"
            return Fail(Reason.BMC_PASSWORD_UNCLEAR, message)
        del self._attempt.node.driver_info[self._pending]
        self._record(PasswordProgress.UNCHANGED)
        self._journal.note(_STEP, "unchanged: the BMC has accepted a login with the stored password")
        return Fail(error.reason, str(error))

    def _record(self, result: PasswordProgress) -> None:
        now = self._services.store.read(lambda tx: tx.now)
        self._attempt.node.internal[bmc_password.RECORD] = msgspec.to_builtins(Record(result, now))
