"""What a failure of a Redfish service means: message, reason code, and whether and when to try again.

A command may also fail after it was accepted, in its task. docs/explanation/bmc-failures.md has the same failure
matrix. A BMC that restarts, or has just reset the machine, answers with anything for a while: nothing, an empty body, a
web page, 404, 500, "not ready". If the BMC has answered properly before, such answers are temporary. Otherwise, the
driver repeats the request a few times, and then believes the answer.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import re
import ssl
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import requests
import urllib3
from sushy import exceptions as sushy

from ferroscope.contracts.errors import BmcError
from ferroscope.core.callback_secret import without_disk_key
from ferroscope.core.model import Document
from ferroscope.remote.addresses import not_allowed
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.resolver import ForbiddenAddressError, NoLookupError, UnresolvedError
from ferroscope.remote.retry import retry_after
from ferroscope.remote.session import TooLargeError
from ferroscope_client.core import json_safety
from ferroscope_client.core.explanations import EXPLANATIONS
from ferroscope_client.core.reasons import UNAVAILABLE, Reason
from ferroscope_client.core.tls_errors import is_disagreement, is_plain
from ferroscope_client.core.values import MASK, WITHHELD, is_too_short, many, one_line, without_secrets
from ferroscope_client.hardware.readings import mapping, mappings, text

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.driver import RedfishAccess

_MAX_MESSAGE: Final = 300
_MAX_READ: Final = 4096
_MAX_SHOWN: Final = 120
# Exceptions for an answer that begins, and then ends too soon or is not HTTP.
_BROKEN: Final = (http.client.HTTPException, urllib3.exceptions.DecodeError, ValueError)
# Busy or locked: the same call may succeed later.
_TRANSIENT: Final = frozenset({408, 409, 412, 423, 425, 429, 500, 502, 503, 504})
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
# bmcweb reports an ended session with 403 and this word. Elsewhere 403 means that privileges are missing.
_NO_SESSION: Final = "novalidsession"
# The answer of web servers to plain HTTP on a TLS port.
_WANTS_TLS: Final = re.compile(r"HTTP request[^.]{0,40} to (?:an )?HTTPS|\x15\x03", re.IGNORECASE)
# Every resource and every collection has one of these, and no error has.
_OWN: Final = frozenset({"Id", "Members"})
_RETRY_ARGUMENT: Final = "ServiceTemporarilyUnavailable"
# Messages with these reasons contain words of the system and ours only, so they cannot contain the password.
_OWN_WORDS: Final = frozenset({
    Reason.BMC_UNREACHABLE, Reason.BMC_NAME_UNKNOWN, Reason.BMC_CONNECTION_REFUSED, Reason.BMC_CERTIFICATE,
    Reason.BMC_CERTIFICATE_EXPIRED, Reason.BMC_CERTIFICATE_HOST, Reason.BMC_CA_UNUSABLE,
})  # fmt: skip
# Why OpenSSL refuses a certificate that a trusted CA may have signed; the codes are those of x509_vfy.h.
_CERTIFICATE_REASONS: Final = {
    9: Reason.BMC_CERTIFICATE_EXPIRED,  # not yet valid
    10: Reason.BMC_CERTIFICATE_EXPIRED,
    62: Reason.BMC_CERTIFICATE_HOST,  # another name
    64: Reason.BMC_CERTIFICATE_HOST,  # another address
}


_RUNNING_TASKS: Final = frozenset({
    "new", "starting", "running", "pending", "stopping", "suspended", "cancelling", "service",
})  # fmt: skip
_FAILED_TASKS: Final = frozenset({"exception", "killed", "cancelled", "interrupted"})
_MAX_TASK_CHARACTERS: Final = 200


class InvalidAnswerError(Exception):
    """An answer that is not a Redfish resource; the message says what it is instead."""


class TaskFailedError(Exception):
    """A command that the BMC accepted, and could not carry out; the message is the BMC's."""


def readable_resource(body: bytes) -> bytes:
    """Return the JSON of a resource, in which one odd value costs no others; ``InvalidAnswerError`` if it is none."""
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise InvalidAnswerError("empty")
    if start[:1] != b"{":
        raise InvalidAnswerError("a web page" if start[:1] == b"<" else "not a JSON object")
    try:
        return json_safety.readable(body)
    except json_safety.JsonTooLargeError as exc:
        raise InvalidAnswerError(f"JSON that is not decoded: {exc}") from None
    except json_safety.JsonError:
        raise InvalidAnswerError("not JSON") from None


def has_resource(body: bytes) -> bool:
    with contextlib.suppress(json_safety.JsonError):
        return is_partial(mapping(json_safety.decode(json_safety.readable(body))))
    return False


def is_partial(document: Document) -> bool:
    """Whether there is an error beside a resource: OpenBMC could not find out everything."""
    return "error" in document and isinstance(document.get("@odata.id"), str) and not document.keys().isdisjoint(_OWN)


def unparsed_error(method: str, url: str, response: requests.Response) -> sushy.HTTPError:
    """Return the error for an answer whose error message sushy could not read."""
    kind = {401: sushy.AccessError, 403: sushy.AccessError, 404: sushy.ResourceNotFoundError}
    bare = requests.Response()
    bare.status_code = response.status_code
    error = kind.get(response.status_code, sushy.HTTPError)(method, url, bare)
    error.response = response
    return error


def translate(
    error: Exception,
    access: RedfishAccess,
    action: str,
    deadline: Deadline,
    *,
    is_known: bool = False,
    logged_in: bool = False,
    new: str = "",
) -> BmcError:
    """Return the ``BmcError``, without secrets, for any ``error`` of ``action`` but ``TooLateError``.

    ``is_known``: this BMC has answered the same request before, so it only needs time. ``logged_in``: the BMC has
    opened a session for it. ``new``: another password that was sent to the BMC.
    """
    if isinstance(error, BmcError):
        if new:
            error.args = (_without_passwords(str(error), access, new),)
        return error
    if isinstance(error, ForbiddenAddressError):
        return not_allowed(urlsplit(access.url).hostname or "")
    verdict = _late_error(error, deadline) or _classify(error, is_known=is_known)
    if logged_in and verdict.reason is Reason.BMC_CREDENTIALS and is_rejected_login(error):
        verdict = _no_login(error)
    message = f"{action} at {access.url}: {verdict}"
    if not is_too_short(access.password):
        message = _without_passwords(message, access, new)
    elif verdict.reason in _OWN_WORDS:
        message = without_secrets(message)
    else:
        message = f"{action} at {access.url}: {EXPLANATIONS[verdict.reason].meaning.rstrip('.')} ({WITHHELD})"
    verdict.args = (message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…",)
    return verdict


def _without_passwords(text: str, access: RedfishAccess, new: str) -> str:
    """Return ``text`` without the passwords in any encoding, and without the secrets in URLs.

    Call it before the text is cut: the rest of a secret that was cut would stay. One password may begin with the other,
    so the longest comes first.
    """
    for password in sorted(filter(None, (access.password, new)), key=len, reverse=True):
        pair = base64.b64encode(f"{access.username}:{password}".encode()).decode()
        for secret in (pair, password):
            text = text.replace(secret, MASK)
    return without_disk_key(without_secrets(text))


def _late_error(error: Exception, deadline: Deadline) -> BmcError | None:
    """Return the error if the call's time is over, unless the name server caused the delay."""
    is_late = deadline.has_expired or isinstance(error, DeadlineError)
    if not is_late or any(isinstance(cause, UnresolvedError) for cause in _causes(error)):
        return None
    if not deadline.advanced:
        return _verdict(Reason.BMC_UNREACHABLE, f"timed out after {deadline.seconds:g} s")
    answers = f"{many(deadline.advanced, 'answer')} in {time.monotonic() - deadline.began:.0f} s"
    hint = "if it is always like this, raise [drivers] command_timeout, and inventory_timeout for all of a call"
    message = f"the BMC answers, but slowly: {answers}, and then no time was left; {hint}"
    return _verdict(Reason.BMC_NOT_READY, message)


def is_rejected_login(error: Exception) -> bool:
    """Whether the BMC says that the session has ended, or that the credentials are wrong: by 401, or in other words."""
    if not isinstance(error, sushy.AccessError):
        return False
    return error.status_code == 401 or _NO_SESSION in message_of(error).lower()


def sessions_are_exhausted(error: Exception) -> bool:
    """Whether the BMC says that it has no session left."""
    return isinstance(error, sushy.HTTPError) and bool(_SESSIONS.search(message_of(error)))


def is_temporary(error: Exception | None) -> bool:
    """Whether the BMC has answered that the same request may succeed later."""
    if not isinstance(error, sushy.HTTPError) or getattr(error, "lasting", False):
        return False
    code = error.status_code
    return code in _TRANSIENT or (code not in (401, 403) and bool(_NOT_READY.search(message_of(error))))


def message_of(error: sushy.HTTPError) -> str:
    """Return what the body of an answer says, in whatever form."""
    response = getattr(error, "response", None)
    body = response.content[:_MAX_READ].decode(errors="replace") if response is not None else ""
    return f"{body} {error.detail or ''}"


def _seconds_to_wait(error: Exception) -> float:
    """Return the seconds for which the BMC wants no request, 0 if it names none."""
    response = getattr(error, "response", None)
    headers = response.headers if response is not None else {}
    seconds = retry_after(headers.get("Retry-After"), headers.get("Date"))
    for detail in getattr(error, "extended_info", None) or ():
        # ironcore-dev/metal-operator#170: the time is in the message only.
        if isinstance(detail, dict) and _RETRY_ARGUMENT in str(detail.get("MessageId")):
            arguments = detail.get("MessageArgs") or [""]
            seconds = max(seconds, retry_after(str(arguments[0]), None) if isinstance(arguments, list) else 0.0)
    return seconds


def _verdict(
    reason: Reason,
    message: str,
    pause: float | None = None,
    *,
    transient: bool | None = None,
    again: bool | None = None,
) -> BmcError:
    """Return the error; by default, it is transient if the BMC can do nothing at present, or has no session left."""
    is_busy = reason in UNAVAILABLE or reason is Reason.BMC_BUSY
    return BmcError(
        message, transient=is_busy if transient is None else transient, reason=reason, pause=pause, again=again
    )


def _classify(error: BaseException, *, is_known: bool) -> BmcError:
    unresolved = next((cause for cause in _causes(error) if isinstance(cause, UnresolvedError)), None)
    if isinstance(unresolved, NoLookupError):
        return BmcError(str(unresolved), transient=True, reason=Reason.BMC_BUSY, waits=True)
    if unresolved is not None:
        return _verdict(Reason.BMC_NAME_UNKNOWN, str(unresolved))
    if isinstance(error, InvalidAnswerError):
        return _not_redfish(str(error), is_known=is_known)
    if isinstance(error, TaskFailedError):
        return _verdict(Reason.BMC_REFUSED, f"the BMC accepted this, and could not carry it out: {error}")
    if isinstance(error, sushy.HTTPError):
        return _classify_answer(error, is_known=is_known)
    if isinstance(error, sushy.ConnectionError | requests.exceptions.RequestException):
        return _classify_connection_error(error, is_known=is_known)
    if isinstance(error, sushy.SushyError):
        return _verdict(Reason.BMC_REFUSED, f"the BMC does not support this: {error}")
    if isinstance(error, OSError):
        return _verdict(Reason.BMC_CA_UNUSABLE, f"redfish_verify_ca: {error.strerror or error}")
    if isinstance(error.__context__, sushy.SushyError):  # sushy failed while parsing an error response
        return _classify(error.__context__, is_known=is_known)
    # Any exception that sushy raises for a response that violates the standard.
    return _verdict(Reason.BMC_REFUSED, f"invalid response ({type(error).__name__})")


def _classify_answer(error: sushy.HTTPError, *, is_known: bool) -> BmcError:
    code, message = error.status_code, message_of(error)
    status = f"HTTP {code}" + (f": {error.detail}" if error.detail else "")
    if _WANTS_TLS.search(message):
        return _speaks_tls()
    if sessions_are_exhausted(error):
        hint = "close some, or set redfish_auth_type to basic"
        message = f"all sessions of the BMC are in use ({status}); {hint}"
        return _verdict(Reason.BMC_BUSY, message, _seconds_to_wait(error))
    if is_rejected_login(error):
        return _verdict(Reason.BMC_CREDENTIALS, f"the credentials were rejected ({status})")
    if code == 403 and "passwordchangerequired" in message.replace(" ", "").lower():
        message = f"the BMC demands a new password for this account first ({status})"
        return _verdict(Reason.BMC_CREDENTIALS, message)
    if code == 403:
        return _verdict(Reason.BMC_PRIVILEGES, f"the account lacks the privilege for this ({status})")
    if is_temporary(error):
        message = f"the BMC is temporarily unavailable ({status})"
        return _verdict(Reason.BMC_NOT_READY, message, _seconds_to_wait(error))
    if code == 404 and (is_known or _is_of_command(error)):
        message = f"the BMC does not have what it had before; it may be restarting ({status})"
        return _verdict(Reason.BMC_NOT_READY, message, _seconds_to_wait(error))
    message = f"the BMC refused{getattr(error, 'hint', '')} ({status})"
    return _verdict(Reason.BMC_REFUSED, message, again=code == 404)  # 404: it may only be missing as yet


def _no_login(error: Exception) -> BmcError:
    """Return what a rejected request means after a login that was accepted, and other logins after it."""
    status = f"HTTP {getattr(error, 'status_code', 401)}"
    message = f"the BMC accepts the login, but not this request ({status}): the account may lack the privilege for it"
    hint = "or the BMC ends sessions at once; if it does, set redfish_auth_type to basic"
    return _verdict(Reason.BMC_PRIVILEGES, f"{message}, {hint}")


def _not_redfish(content: str, *, is_known: bool) -> BmcError:
    if is_known:
        return _verdict(Reason.BMC_NOT_READY, f"the BMC answers with {content}; it may be restarting", 0.0)
    message = f"the response is {content}; is this a Redfish service? Check the host and port of redfish_address"
    return _verdict(Reason.BMC_NOT_REDFISH, message, again=True)


def _speaks_tls() -> BmcError:
    return _verdict(Reason.BMC_NOT_REDFISH, "the port uses TLS, but redfish_address says http; use https")


def _classify_connection_error(error: Exception, *, is_known: bool) -> BmcError:
    chain = _causes(error)
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = _CERTIFICATE_REASONS.get(cause.verify_code, Reason.BMC_CERTIFICATE)
            return _verdict(reason, f"the certificate is not trusted: {cause.verify_message}")
        if isinstance(cause, TooLargeError):
            return _verdict(Reason.BMC_REFUSED, str(cause))
        if isinstance(cause, ssl.SSLError):
            if is_plain(cause):
                hint = "set redfish_address to http://HOST:PORT, or to the port of https"
                message = f"the port does not use TLS, but redfish_address says https; {hint}"
                return _verdict(Reason.BMC_NOT_REDFISH, message)
            if is_disagreement(cause):
                options = "redfish_tls_minimum_version and redfish_tls_ciphers"
                message = f"TLS handshake failed: no common version or cipher ({cause.reason}); see {options}"
                return _verdict(Reason.BMC_REFUSED, message, transient=True)
        if isinstance(cause, DeadlineError):
            return _verdict(Reason.BMC_UNREACHABLE, "timed out")
    if any(isinstance(cause, requests.exceptions.JSONDecodeError) for cause in chain):
        return _not_redfish("not JSON", is_known=is_known)
    if any("\x15\x03" in str(cause) or r"\x15\x03" in str(cause) for cause in chain):
        return _speaks_tls()
    if any(isinstance(cause, _BROKEN) and not isinstance(cause, http.client.RemoteDisconnected) for cause in chain):
        message = f"the response breaks off, or is not HTTP ({_innermost(chain)}); the BMC may be restarting"
        return _verdict(Reason.BMC_UNREACHABLE, message)
    # A BMC that restarts refuses connections; one that never answered may have another address.
    is_refused = any(isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED for cause in chain)
    reason = Reason.BMC_CONNECTION_REFUSED if is_refused else Reason.BMC_UNREACHABLE
    return _verdict(reason, f"cannot connect ({_innermost(chain)})", 0.0 if is_refused and is_known else None)


def _is_of_command(error: sushy.HTTPError) -> bool:
    """Whether it answers a command, whose address is in a resource that was read a moment ago."""
    request = getattr(getattr(error, "response", None), "request", None)
    return request is not None and request.method != "GET"


def is_running(connector: Any, monitor: str) -> bool:
    """Whether a task goes on; ``TaskFailedError`` if it has failed, sushy's exceptions if that is unknown.

    The task monitor answers 202 until the task has ended, and then as the command would have been answered. Some
    services lead to the task instead, with its ``TaskState``. Source: DSP0266, 13.5.6.
    """
    try:
        answer = connector.get(path=monitor)
    except InvalidAnswerError:  # an empty one
        return bool(connector.status == HTTPStatus.ACCEPTED)
    except sushy.AccessError:
        raise
    except sushy.HTTPError as exc:
        if exc.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):  # it has ended, and is forgotten
            return False
        if is_temporary(exc):
            raise
        raise TaskFailedError(one_line(str(exc.detail or f"HTTP {exc.status_code}"), _MAX_TASK_CHARACTERS)) from None
    task = mapping(json_safety.decode(answer.content))
    state = str(task.get("TaskState")).lower()
    if state in _FAILED_TASKS:
        texts = [words for message in mappings(task.get("Messages")) if (words := text(message.get("Message")))]
        raise TaskFailedError(one_line(texts[-1] if texts else state, _MAX_TASK_CHARACTERS))
    return state in _RUNNING_TASKS or (answer.status_code == HTTPStatus.ACCEPTED and "TaskState" not in task)


def _causes(error: BaseException) -> list[BaseException]:
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
