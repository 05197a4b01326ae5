"""What went wrong, in the port's terms: transient or permanent, with a reason code and no secret.

Every exception of sushy, requests and the deadline ends here; see the failure matrix in
docs/explanation/bmc-failures.md, which states the same.
"""

from __future__ import annotations

import base64
import ssl
from typing import Final

import requests
from sushy import exceptions as sushy

from ferroscope.bmc.redfish.info import Access
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from ferroscope.core.values import MASK, WITHHELD, is_too_short
from ferroscope.remote.bounded_http import DeadlineError
from ferroscope.remote.session import TooLargeError

_MAX_MESSAGE: Final = 300
# Busy, locked, in the middle of something: the same call may succeed a moment later.
_TRANSIENT: Final = frozenset({408, 409, 412, 423, 425, 429, 500, 502, 503, 504})


def translate(error: Exception, access: Access, what: str, seconds: float) -> BmcError:
    """Return the port's error for ``error``, which ended ``what`` on the BMC of ``access``."""
    message, transient, reason = _judged(error, seconds)
    if is_too_short(access.password):
        return BmcError(f"{what} at {access.url}: {reason} ({WITHHELD})", transient=transient, reason=reason)
    return BmcError(scrub(f"{what} at {access.url}: {message}", access), transient=transient, reason=reason)


def scrub(text: str, access: Access) -> str:
    """Return ``text`` without the password in any form in which it travels, and not too long."""
    if access.password:
        pair = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
        for secret in (pair, access.password):
            text = text.replace(secret, MASK)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


def is_rejected_login(error: Exception) -> bool:
    """Whether the BMC says 401: a session that ended, or wrong credentials."""
    return isinstance(error, sushy.AccessError) and error.status_code == 401


def _judged(error: Exception, seconds: float) -> tuple[str, bool, Reason]:
    if isinstance(error, DeadlineError):
        return f"no answer within {seconds:g} s", True, Reason.BMC_UNREACHABLE
    if isinstance(error, sushy.HTTPError):
        return _answered(error)
    if isinstance(error, sushy.ConnectionError | requests.exceptions.RequestException):
        return _unanswered(error)
    if isinstance(error, sushy.SushyError):
        return f"the BMC lacks what is needed: {error}", False, Reason.BMC_REFUSED
    if isinstance(error, OSError):
        return f"{error.strerror or error}", False, Reason.BMC_CERTIFICATE  # a CA file that is not there
    if isinstance(error.__context__, sushy.SushyError):  # sushy stumbled over the refusal that it was looking at
        return _judged(error.__context__, seconds)
    # Whatever sushy stumbles over in an answer that follows no standard.
    return f"the answer makes no sense ({type(error).__name__})", False, Reason.BMC_REFUSED


def _answered(error: sushy.HTTPError) -> tuple[str, bool, Reason]:
    code = error.status_code
    said = f"HTTP {code}" + (f": {error.detail}" if error.detail else "")
    if code == 401:
        return f"the credentials were rejected ({said})", False, Reason.BMC_CREDENTIALS
    if code == 403:
        return f"the account may not do this ({said})", False, Reason.BMC_REFUSED
    if code in _TRANSIENT:
        return f"the BMC is temporarily unavailable ({said})", True, Reason.BMC_UNREACHABLE
    return f"it refused ({said})", False, Reason.BMC_REFUSED


def _unanswered(error: Exception) -> tuple[str, bool, Reason]:
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}", False, Reason.BMC_CERTIFICATE
        if isinstance(cause, TooLargeError):
            return str(cause), False, Reason.BMC_REFUSED
        if isinstance(cause, ssl.SSLError) and _is_disagreement(cause):
            options = "redfish_tls_minimum_version and redfish_tls_ciphers"
            message = f"TLS handshake failed: no common version or cipher ({cause.reason}); see {options}"
            return message, True, Reason.BMC_UNREACHABLE
        if isinstance(cause, DeadlineError):
            return "no answer in time", True, Reason.BMC_UNREACHABLE
    if any(isinstance(cause, requests.exceptions.JSONDecodeError) for cause in chain):
        return "the answer is no JSON; is this a Redfish service?", False, Reason.BMC_REFUSED
    return f"it cannot be reached ({_innermost(chain)})", True, Reason.BMC_UNREACHABLE


def _is_disagreement(error: ssl.SSLError) -> bool:
    """Whether both sides have spoken, and found no version or cipher; a handshake that was cut off is no such thing."""
    return any(word in str(error.reason) for word in ("PROTOCOL_VERSION", "UNSUPPORTED", "HANDSHAKE_FAILURE"))


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and everything that it came from, outermost first."""
    found: list[BaseException] = []
    pending: list[BaseException] = [error]
    while pending and len(found) < 30:
        cause = pending.pop(0)
        if cause in found:
            continue
        found.append(cause)
        nested = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        pending += [inner for inner in nested if isinstance(inner, BaseException)]
    return found


def _innermost(chain: list[BaseException]) -> str:
    plain = [cause for cause in chain if isinstance(cause, OSError) and cause.strerror]
    named = [str(cause).rpartition(": ")[2] for cause in chain if type(cause).__name__ == "NameResolutionError"]
    if plain:
        return str(plain[-1].strerror)
    return named[0] if named else str(chain[-1])[:120]
