"""What a failure of a Redfish service means: message, reason code, and whether and when to try again.

docs/explanation/bmc-failures.md has the same failure matrix. A BMC that restarts, or has just reset the
machine, answers with anything for a while: nothing, an empty body, a web page, 404, 500, "not ready". From a BMC that
has answered properly before, such answers are temporary; from one that never has, they are tried a few times and then
believed.
"""

from __future__ import annotations

import base64
import errno
import http.client
import re
import ssl
import time
from typing import Any, Final, NamedTuple

import requests
import urllib3
from sushy import exceptions as sushy

from ferroscope.bmc.redfish.info import Access
from ferroscope.contracts.errors import BmcError
from ferroscope.core.callback_secret import without_disk_key
from ferroscope.core.explanations import EXPLANATIONS
from ferroscope.core.reasons import Reason
from ferroscope.core.values import MASK, WITHHELD, is_too_short, many, one_line, without_secrets
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.resolver import NoLookupError, UnresolvedError
from ferroscope.remote.retry import retry_after
from ferroscope.remote.session import TooLargeError
from ferroscope.remote.tls_errors import is_disagreement, is_plain

_MAX_MESSAGE: Final = 300
_MAX_READ: Final = 4096
_MAX_SHOWN: Final = 120
# What is raised for an answer that begins, and then is no HTTP, or ends too soon.
_BROKEN: Final = (http.client.HTTPException, urllib3.exceptions.DecodeError, ValueError)
# Busy or locked: the same call may succeed later.
_TRANSIENT: Final = frozenset({408, 409, 412, 423, 425, 429, 500, 502, 503, 504})
_SCHEME: Final = "set redfish_address to http://HOST:PORT, or to the port of https"
# quadsproject/badfish#129 (400, SWC0700), ironcore-dev/metal-operator#170 (SYS518), microsoft/lisa#4421 (RAC0508),
# and iLO's InvalidOperationForSystemState while it tests the machine.
_NOT_READY: Final = re.compile(
    r"not ready|not yet ready|initiali[sz]ing|starting up|try again|retry (?:in|after|the operation)|"
    r"temporarily unavailable|SYS518|SWC0700|RAC0508|InvalidOperationForSystemState|UnableToModifyDuringSystemPOST",
    re.IGNORECASE,
)
# stmcginnis/gofish#75, bb-Ricardo/check_redfish#89 (RAC0218).
_SESSIONS: Final = re.compile(
    r"SessionLimitExceeded|RAC0218|(?:max|limit|exceed|too many|no (?:more|free)|exhaust)[^.]{0,60}\bsessions?\b|"
    r"\bsessions?\b[^.]{0,60}(?:max|limit|exceed|exhaust|in use)",
    re.IGNORECASE,
)
# bmcweb says this of a session that has ended with 403, which elsewhere is a lack of privileges.
_NO_SESSION: Final = "novalidsession"
# What web servers say to plain HTTP on a port of TLS.
_WANTS_TLS: Final = re.compile(r"HTTP request[^.]{0,40} to (?:an )?HTTPS|\x15\x03", re.IGNORECASE)
_RETRY_ARGUMENT: Final = "ServiceTemporarilyUnavailable"


# Messages for these reasons are of the system's and of our words only.
_OWN_WORDS: Final = frozenset({
    Reason.BMC_UNREACHABLE, Reason.BMC_NAME_UNKNOWN, Reason.BMC_CONNECTION_REFUSED, Reason.BMC_CERTIFICATE,
    Reason.BMC_CERTIFICATE_EXPIRED, Reason.BMC_CERTIFICATE_HOST, Reason.BMC_CA_UNUSABLE,
})  # fmt: skip
# Why OpenSSL refuses a certificate that a trusted CA may have signed: x509_vfy.h.
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
_CERTIFICATE_REASONS: Final = {
    _NOT_YET_VALID: Reason.BMC_CERTIFICATE_EXPIRED,
    _EXPIRED: Reason.BMC_CERTIFICATE_EXPIRED,
    _OTHER_HOST: Reason.BMC_CERTIFICATE_HOST,
    _OTHER_ADDRESS: Reason.BMC_CERTIFICATE_HOST,
}


class InvalidAnswerError(Exception):
    """An answer that is no Redfish resource; ``content`` says what it is instead."""

    def __init__(self, content: str) -> None:
        self.content = content
        super().__init__(content)


class SlowError(Exception):
    """The call's time is over, and the BMC has answered some of its requests."""


class TaskFailedError(Exception):
    """A command that the BMC accepted, and could not carry out; the message is the BMC's."""


class Verdict(NamedTuple):
    """What to make of an error; ``again``, ``pause``, ``waits`` as in ``BmcError``, ``again`` None as ``transient``."""

    message: str
    transient: bool
    reason: Reason
    pause: float | None = None
    again: bool | None = None
    waits: bool = False

    @property
    def quotes(self) -> bool:
        """Whether the message may contain what the BMC has sent, and so the password."""
        return self.reason not in _OWN_WORDS


def translate(
    error: Exception,
    access: Access,
    action: str,
    seconds: float,
    *,
    is_known: bool = False,
    logged_in: bool = False,
    new: str = "",
) -> BmcError:
    """Return the ``BmcError`` for ``error``, which was raised by ``action`` on the BMC of ``access``.

    ``is_known``: what failed has been read from this BMC before, so that it only needs time. ``logged_in``: the BMC has
    opened a session for it. ``new``: a password that was sent to the BMC, too.
    """
    verdict = _classify(error, seconds, is_known=is_known)
    if logged_in and verdict.reason is Reason.BMC_CREDENTIALS and is_rejected_login(error):
        verdict = _no_login(error)
    message = f"{action} at {access.url}: {verdict.message}"
    if not is_too_short(access.password):
        text = scrub(message, access, new)
    elif verdict.quotes:
        text = f"{action} at {access.url}: {EXPLANATIONS[verdict.reason].meaning.rstrip('.')} ({WITHHELD})"
    else:
        text = _shorten(without_secrets(message))
    return BmcError(
        text,
        transient=verdict.transient,
        reason=verdict.reason,
        pause=verdict.pause,
        again=verdict.again,
        waits=verdict.waits,
    )


def final_error(error: Exception, deadline: Deadline) -> Exception:
    """Return the error that counts: after the deadline its end, unless it was the name server that took so long."""
    if not deadline.has_expired or any(isinstance(cause, UnresolvedError) for cause in causes(error)):
        return error
    if not deadline.advanced:
        return DeadlineError()
    return SlowError(f"{many(deadline.advanced, 'answer')} in {time.monotonic() - deadline.began:.0f} s")


def scrub(text: str, access: Access, new: str = "") -> str:
    """Return ``text`` without the passwords in any encoding, and what is secret in URLs; not too long.

    All at once: of a secret that was cut off with the end of the text, the beginning would not be found any more. One
    may begin with another, so the longest comes first.
    """
    for password in sorted(filter(None, (access.password, new)), key=len, reverse=True):
        pair = base64.b64encode(f"{access.username}:{password}".encode()).decode()
        for secret in (pair, password):
            text = text.replace(secret, MASK)
    text = without_disk_key(without_secrets(text))
    return _shorten(text)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


def is_rejected_login(error: Exception) -> bool:
    """Whether the BMC says that the session has ended, or that the credentials are wrong: by 401, or in other words."""
    if not isinstance(error, sushy.AccessError):
        return False
    return error.status_code == 401 or _NO_SESSION in message_of(error).lower()


def sessions_are_exhausted(error: Exception) -> bool:
    """Whether the BMC says that it has no session left."""
    return isinstance(error, sushy.HTTPError) and bool(_SESSIONS.search(message_of(error)))


def is_temporary(error: Exception) -> bool:
    """Whether the BMC has answered that the same request may succeed later."""
    if not isinstance(error, sushy.HTTPError):
        return False
    code = error.status_code
    if getattr(error, "lasting", False):
        return False
    return code in _TRANSIENT or (code not in (401, 403) and bool(_NOT_READY.search(message_of(error))))


def seconds_to_wait(error: Exception) -> float:
    """Return the seconds for which the BMC asks to be left alone, 0 if it does not."""
    response = getattr(error, "response", None)
    headers = response.headers if response is not None else {}
    seconds = retry_after(headers.get("Retry-After"), headers.get("Date"))
    for detail in getattr(error, "extended_info", None) or ():
        # ironcore-dev/metal-operator#170: the time is in the message only.
        if isinstance(detail, dict) and _RETRY_ARGUMENT in str(detail.get("MessageId")):
            arguments = detail.get("MessageArgs") or [""]
            seconds = max(seconds, retry_after(str(arguments[0]), None) if isinstance(arguments, list) else 0.0)
    return seconds


def _classify(error: Exception, seconds: float, *, is_known: bool) -> Verdict:
    unresolved = next((cause for cause in causes(error) if isinstance(cause, UnresolvedError)), None)
    if unresolved is not None:
        if isinstance(unresolved, NoLookupError):
            return Verdict(str(unresolved), True, Reason.BMC_BUSY, waits=True)
        return Verdict(str(unresolved), True, Reason.BMC_NAME_UNKNOWN)
    if isinstance(error, DeadlineError):
        return Verdict(f"timed out after {seconds:g} s", True, Reason.BMC_UNREACHABLE)
    if isinstance(error, SlowError):
        hint = "if it is always like this, raise [drivers] command_timeout, and inventory_timeout for all of a call"
        return Verdict(
            f"the BMC answers, but slowly: {error}, and then no time was left; {hint}", True, Reason.BMC_NOT_READY
        )
    if isinstance(error, InvalidAnswerError):
        return _not_redfish(error.content, is_known=is_known)
    if isinstance(error, TaskFailedError):
        return Verdict(f"the BMC accepted this, and could not carry it out: {error}", False, Reason.BMC_REFUSED)
    if isinstance(error, sushy.HTTPError):
        return _classify_answer(error, is_known=is_known)
    if isinstance(error, sushy.ConnectionError | requests.exceptions.RequestException):
        return _classify_connection_error(error, is_known=is_known)
    if isinstance(error, sushy.SushyError):
        return Verdict(f"the BMC does not support this: {error}", False, Reason.BMC_REFUSED)
    if isinstance(error, OSError):
        return Verdict(f"redfish_verify_ca: {error.strerror or error}", False, Reason.BMC_CA_UNUSABLE)
    if isinstance(error.__context__, sushy.SushyError):  # sushy failed while parsing an error response
        return _classify(error.__context__, seconds, is_known=is_known)
    # Any exception that sushy raises for a response that violates the standard.
    return Verdict(f"invalid response ({type(error).__name__})", False, Reason.BMC_REFUSED)


def _classify_answer(error: sushy.HTTPError, *, is_known: bool) -> Verdict:
    code, message = error.status_code, message_of(error)
    status = f"HTTP {code}" + (f": {error.detail}" if error.detail else "")
    if _WANTS_TLS.search(message):
        return _speaks_tls()
    if sessions_are_exhausted(error):
        hint = "close some, or set redfish_auth_type to basic"
        return Verdict(
            f"all sessions of the BMC are in use ({status}); {hint}", True, Reason.BMC_BUSY, seconds_to_wait(error)
        )
    if is_rejected_login(error):
        return Verdict(f"the credentials were rejected ({status})", False, Reason.BMC_CREDENTIALS)
    if code == 403 and "passwordchangerequired" in message.replace(" ", "").lower():
        message = f"the BMC demands a new password for this account first ({status})"
        return Verdict(message, False, Reason.BMC_CREDENTIALS)
    if code == 403:
        return Verdict(f"the account lacks the privilege for this ({status})", False, Reason.BMC_PRIVILEGES)
    if is_temporary(error):
        message = f"the BMC is temporarily unavailable ({status})"
        return Verdict(message, True, Reason.BMC_NOT_READY, seconds_to_wait(error))
    if code == 404 and (is_known or _is_of_command(error)):
        message = f"the BMC does not have what it had before; it may be restarting ({status})"
        return Verdict(message, True, Reason.BMC_NOT_READY, seconds_to_wait(error))
    # Not there, or not there yet.
    return Verdict(
        f"the BMC refused{getattr(error, 'hint', '')} ({status})", False, Reason.BMC_REFUSED, again=code == 404
    )


def _no_login(error: Exception) -> Verdict:
    """Return what a rejected request means after a login that was accepted, and other logins after it."""
    status = f"HTTP {getattr(error, 'status_code', 401)}"
    message = f"the BMC accepts the login, but not this request ({status}): the account may lack the privilege for it"
    hint = "or the BMC ends sessions at once; if it does, set redfish_auth_type to basic"
    return Verdict(f"{message}, {hint}", False, Reason.BMC_PRIVILEGES)


def _not_redfish(content: str, *, is_known: bool) -> Verdict:
    if is_known:
        return Verdict(f"the BMC answers with {content}; it may be restarting", True, Reason.BMC_NOT_READY, 0.0)
    message = f"the response is {content}; is this a Redfish service? Check the host and port of redfish_address"
    return Verdict(message, False, Reason.BMC_NOT_REDFISH, again=True)


def _speaks_tls() -> Verdict:
    message = "the port uses TLS, but redfish_address says http; use https"
    return Verdict(message, False, Reason.BMC_NOT_REDFISH)


def _classify_connection_error(error: Exception, *, is_known: bool) -> Verdict:
    chain = causes(error)
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = _CERTIFICATE_REASONS.get(cause.verify_code, Reason.BMC_CERTIFICATE)
            return Verdict(f"the certificate is not trusted: {cause.verify_message}", False, reason)
        if isinstance(cause, TooLargeError):
            return Verdict(str(cause), False, Reason.BMC_REFUSED)
        if isinstance(cause, ssl.SSLError):
            if is_plain(cause):
                message = f"the port does not use TLS, but redfish_address says https; {_SCHEME}"
                return Verdict(message, False, Reason.BMC_NOT_REDFISH)
            if is_disagreement(cause):
                options = "redfish_tls_minimum_version and redfish_tls_ciphers"
                message = f"TLS handshake failed: no common version or cipher ({cause.reason}); see {options}"
                return Verdict(message, True, Reason.BMC_REFUSED)
        if isinstance(cause, DeadlineError):
            return Verdict("timed out", True, Reason.BMC_UNREACHABLE)
    if any(isinstance(cause, requests.exceptions.JSONDecodeError) for cause in chain):
        return _not_redfish("not JSON", is_known=is_known)
    if any("\x15\x03" in str(cause) or r"\x15\x03" in str(cause) for cause in chain):
        return _speaks_tls()
    if any(isinstance(cause, _BROKEN) and not isinstance(cause, http.client.RemoteDisconnected) for cause in chain):
        message = f"the response breaks off, or is not HTTP ({_innermost(chain)}); the BMC may be restarting"
        return Verdict(message, True, Reason.BMC_UNREACHABLE)
    # A BMC that restarts refuses connections; one that never answered may have another address.
    refused = any(isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED for cause in chain)
    pause = 0.0 if refused and is_known else None
    reason = Reason.BMC_CONNECTION_REFUSED if refused else Reason.BMC_UNREACHABLE
    return Verdict(f"cannot connect ({_innermost(chain)})", True, reason, pause)


def _is_of_command(error: sushy.HTTPError) -> bool:
    """Whether it answers a command: what that was sent to was named by a resource that was read a moment ago."""
    request = getattr(getattr(error, "response", None), "request", None)
    return request is not None and request.method != "GET"


def message_of(error: sushy.HTTPError) -> str:
    """Return what the body of an answer says, in whatever form."""
    response = getattr(error, "response", None)
    body = response.content[:_MAX_READ].decode(errors="replace") if response is not None else ""
    return f"{body} {error.detail or ''}"


def causes(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, outermost first."""
    chain: list[BaseException] = []
    pending: list[Any] = [error]
    while pending and len(chain) < 30:
        cause = pending.pop(0)
        if cause in chain:
            continue
        chain.append(cause)
        nested = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        pending += [inner for inner in nested if isinstance(inner, BaseException)]
    return chain


def _innermost(chain: list[BaseException]) -> str:
    plain = [cause for cause in chain if isinstance(cause, OSError) and cause.strerror]
    return str(plain[-1].strerror) if plain else one_line(str(chain[-1]).strip(), _MAX_SHOWN)
