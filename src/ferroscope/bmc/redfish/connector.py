"""sushy's connector over a bounded session: one address, the call's deadline, and no surprises in the answers.

Links of a BMC may carry its own name or an internal address (stmcginnis/gofish#77, DMTF/python-redfish-library#11):
only their path is used, at the address that we know, so that credentials never go elsewhere. sushy's own retries and
its login behind our back are disabled: the first sleep beyond any deadline, the second leaves sessions behind.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from sushy import connector as sushy_connector
from sushy import exceptions as sushy

from ferroscope.bmc.redfish.failures import InvalidAnswerError
from ferroscope.bmc.redfish.info import Access, tls_context
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from ferroscope.core.values import one_line
from ferroscope.remote.addresses import Networks
from ferroscope.remote.deadline import current
from ferroscope.remote.session import BoundedSession

_SHOWN: Final = 120
_REDIRECTS: Final = frozenset({300, 301, 302, 303, 307, 308})


class Connector(sushy_connector.Connector):  # type: ignore[misc]
    """Requests with the remaining time as their time-out; a lost read is repeated once, a command never."""

    _session: Any

    def __init__(self, access: Access, allowed: Networks) -> None:
        super().__init__(
            access.url,
            verify=access.verify,
            response_callback=self._note,
            server_side_retries=1,
            server_side_retries_delay=0,
        )
        plain, self._session = self._session, BoundedSession(access.url, tls_context(access), allowed)
        self._session.headers.update(plain.headers)
        plain.close()
        self._last: Any = None  # the last answer

    def _note(self, response: requests.Response) -> None:
        self._last = response

    def _op(self, method: str, path: str = "", **kwargs: Any) -> Any:
        path = local(path)
        if method != "GET":
            # A BMC may close an idle connection at any time. A read that was lost by that is repeated, but not a
            # command: it is unknown whether the command has arrived.
            self._session.part()
        most = kwargs.get("timeout") or math.inf
        fixed = {"server_side_retries_left": 0, "allow_reauth": False}
        try:
            response = self._once(method, path, **kwargs | fixed | {"timeout": min(most, current().left())})
        except sushy.ConnectionError as exc:
            # A call consists of many requests: one lost response must not repeat all of them.
            if method != "GET" or isinstance(exc.__context__, requests.exceptions.SSLError):
                raise
            response = self._once(method, path, **kwargs | fixed | {"timeout": min(most, current().left())})
        self._check(method, response)
        return response

    def _once(self, method: str, path: str, **kwargs: Any) -> Any:
        self._last = None
        try:
            return super()._op(method, path, **kwargs)
        except sushy.HTTPError as exc:
            exc.response = self._last  # sushy keeps neither headers nor a body that is not JSON
            # It stumbles over an error without a message when it looks for what an insertion lacks.
            exc.code, exc.detail = (one if isinstance(one, str) else "" for one in (exc.code, exc.detail))
            raise
        except Exception as exc:
            # sushy stumbles over error messages of another shape than the standard's; the status remains.
            if isinstance(exc.__context__, sushy.HTTPError):
                raise
            if self._last is not None and self._last.status_code >= 400:
                raise _unparsed(method, path, self._last) from None
            raise

    def _check(self, method: str, response: requests.Response) -> None:
        """Raise if the answer is a redirect that was not followed, or no resource."""
        if response.status_code in _REDIRECTS:
            raise self._redirected(response.headers.get("Location") or "")
        if method != "GET":
            return
        body = response.content.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not body:
            raise InvalidAnswerError("empty")
        if body[:1] == b"<":
            raise InvalidAnswerError("a web page")
        if body[:1] != b"{":
            raise InvalidAnswerError("not a JSON object")

    def _redirected(self, target: str) -> BmcError:
        here, there = urlsplit(self._url), urlsplit(urljoin(self._url, target))
        if here.scheme == "http" and there.scheme == "https" and here.hostname == there.hostname:
            place = one_line(f"https://{there.netloc.rpartition('@')[2]}", _SHOWN)
            message = f"the BMC at {self._url} redirects http to https; set redfish_address to {place}"
            return BmcError(message, transient=False, reason=Reason.BMC_NOT_REDFISH)
        where = one_line(f"{there.scheme}://{there.hostname}", _SHOWN)
        message = f"the BMC at {self._url} redirects to another host ({where}), which is not allowed"
        return BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _unparsed(method: str, url: str, response: requests.Response) -> sushy.HTTPError:
    """Return the error for an answer whose error message sushy could not read."""
    kind = {401: sushy.AccessError, 403: sushy.AccessError, 404: sushy.ResourceNotFoundError}
    bare = requests.Response()
    bare.status_code = response.status_code
    error = kind.get(response.status_code, sushy.HTTPError)(method, url, bare)
    error.response = response
    return error


def local(link: str) -> str:
    """Return path and query of a link, which may be a URL with any host; "" if it cannot be used."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(link)
        path = parts.path if parts.path.startswith("/") or not parts.netloc else f"/{parts.path}"
        # Two slashes would begin a host.
        path = f"/{path.lstrip('/')}" if path.startswith("//") else path
        return f"{path}?{parts.query}" if parts.query else path
    return ""
