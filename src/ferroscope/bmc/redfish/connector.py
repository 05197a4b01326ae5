"""sushy's connector over a bounded session: one address, the call's deadline, and no surprises in the answers.

Links and redirects of a BMC may carry its own name or an internal address (stmcginnis/gofish#77,
DMTF/python-redfish-library#11): only their path is used, at the address that we know, so that credentials never go
elsewhere. sushy's own retries and its login behind our back are disabled: the first sleep beyond any deadline, the
second leaves sessions behind.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from sushy import connector as sushy_connector
from sushy import exceptions as sushy

from ferroscope.bmc.redfish.failures import InvalidAnswerError
from ferroscope.bmc.redfish.info import Access, tls_context
from ferroscope.contracts.errors import BmcError
from ferroscope.core import json_safety
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.core.values import one_line
from ferroscope.hardware.parts import mapping
from ferroscope.remote.addresses import Networks
from ferroscope.remote.deadline import current
from ferroscope.remote.session import BoundedSession

_MAX_SHOWN_CHARACTERS: Final = 120
_REDIRECTS: Final = frozenset({300, 301, 302, 303, 307, 308})
_SEE_OTHER: Final = 303  # after a command: it was carried out
_FIRST_ERROR: Final = 400
_BMC_ERROR: Final = 500
# The longest error of a BMC has some kB. A longer one is no JSON any more, so that only its status counts.
_MAX_ERROR_BYTES: Final = 64 * 1024
# ``Reader`` keeps what it has decoded, also if it is longer.
_MAX_KEPT_BYTES: Final = 64 * 1024
ACCEPTED_STATUS: Final = 202  # after a command: it is being carried out
# What each resource and each collection has, and no error.
_OWN: Final = frozenset({"Id", "Members"})
_ETAG: Final = "@odata.etag"
_PRECONDITIONS: Final = frozenset({HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED})
_COMPRESSED: Final = re.compile(r"[-;](?:gzip|br|deflate)\"\Z")
_MAX_HOPS: Final = 5


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
        del self._session.headers["Connection"]  # sushy's: a handshake for each request; ours end with the call
        plain.close()
        self._last: Any = None  # the last answer
        self._read: dict[str, requests.Response] = {}  # since the last command
        # Where the last command is still being carried out, by its task monitor (DSP0266, 13.5.6); "": it is not.
        self.task = ""

    def _note(self, response: requests.Response) -> None:
        self._last = response
        if response.status_code >= _BMC_ERROR and response.request.method == "GET" and _has_resource(response.content):
            response.status_code = HTTPStatus.OK
        if response.status_code >= _FIRST_ERROR:
            # sushy decodes it uncounted and writes all of it into a message: 4 MB of lists took 1.7 s.
            response._content = response.content[:_MAX_ERROR_BYTES]

    def forget(self) -> None:
        """Read everything anew: another call begins."""
        self._read.clear()
        self._session.disconnect()  # a BMC has few connections, and closes idle ones at any time

    def _op(self, method: str, path: str = "", **kwargs: Any) -> Any:
        """Send a request; what no command can have changed meanwhile is read once in a call, whoever asks for it."""
        requested = path = local(path)
        if method != "GET":
            self._read.clear()
        elif requested in self._read:
            return self._read[requested]
        max_seconds = kwargs.get("timeout") or math.inf
        fixed = {"server_side_retries_left": 0, "allow_reauth": False, "allow_redirects": False}
        for _ in range(_MAX_HOPS):
            if method != "GET":
                # A BMC may close an idle connection at any time. A read that was lost by that is repeated, but not a
                # command: it is unknown whether the command has arrived.
                self._session.disconnect()
            response = self._send_with_retry(method, path, max_seconds, kwargs | fixed)
            following = self._redirect_path(method, path, response)
            if following is None:
                break
            path = following
        else:
            raise _refused_error(f"the BMC at {self._url} redirects without end")
        if method == "GET":
            response._content = _resource(response.content)
            _show_etag(response)
            current().progress(requested)
            if len(response.content) <= _MAX_KEPT_BYTES:
                self._read[requested] = response
        else:
            self.task = _monitor(response) if response.status_code == ACCEPTED_STATUS else ""
            current().progress()
        return response

    def patch(self, path: str = "", data: Any = None, headers: Any = None, etag: str | None = None, **more: Any) -> Any:
        """Write with the ETag, and where the service says that it does not match, with what it may want instead."""
        caller_tag = etag or (headers or {}).get("If-Match") or None
        refusal: Any = None  # there is one tag at least
        sent_tags = []
        for tag in self._tags(path, caller_tag):
            if tag in sent_tags:
                continue
            sent_tags.append(tag)
            try:
                return self._op("PATCH", path, data=data, headers={} if tag is None else {"If-Match": tag}, **more)
            except sushy.HTTPError as exc:
                if exc.status_code not in _PRECONDITIONS:
                    raise
                refusal = exc  # it was not carried out
        refusal.lasting = True
        raise refusal

    def _tags(self, path: str, caller_tag: str | None) -> Iterator[str | None]:
        """Yield what to send as If-Match: the ETag as given, as it is now, in other forms, none, and any."""
        yield caller_tag
        current_tag = self.tag(path)
        for tag in filter(None, (current_tag, caller_tag)):
            strong = '"' + tag.removeprefix("W/").strip('"') + '"'  # some quote it twice, or not at all
            yield from (tag, strong, _COMPRESSED.sub('"', strong))  # some web servers mark what they would compress
        yield from (None, "*")

    def tag(self, path: str) -> str | None:
        """Return the ETag of a resource, also one that it shows as a number."""
        try:
            answer = self.get(path=path)
        except (sushy.HTTPError, InvalidAnswerError):
            return None
        etag = answer.headers.get("ETag") or mapping(json_safety.decode(answer.content)).get(_ETAG)
        text = f'"{etag}"' if isinstance(etag, int) else etag
        return text if isinstance(text, str) and _is_etag(text) else None

    @property
    def status(self) -> int:
        """The status of the last answer, 0 if there was none."""
        return 0 if self._last is None else int(self._last.status_code)

    def _send_with_retry(self, method: str, path: str, max_seconds: float, kwargs: dict[str, Any]) -> Any:
        try:
            return self._send_once(method, path, **kwargs | {"timeout": min(max_seconds, current().seconds_left())})
        except sushy.ConnectionError as exc:
            # A call consists of many requests: one lost response must not repeat all of them.
            if method != "GET" or isinstance(exc.__context__, requests.exceptions.SSLError):
                raise
            return self._send_once(method, path, **kwargs | {"timeout": min(max_seconds, current().seconds_left())})

    def _send_once(self, method: str, path: str, **kwargs: Any) -> Any:
        self._last = None
        try:
            return super()._op(method, path, **kwargs)
        except sushy.HTTPError as exc:
            exc.response = self._last  # sushy keeps neither headers nor a body that is not JSON
            # It stumbles over an error without a message when it looks for what an insertion lacks.
            exc.code, exc.detail = (value if isinstance(value, str) else "" for value in (exc.code, exc.detail))
            raise
        except Exception as exc:
            # sushy stumbles over error messages of another shape than the standard's; the status remains.
            if isinstance(exc.__context__, sushy.HTTPError):
                raise
            if self._last is not None and self._last.status_code >= _FIRST_ERROR:
                raise _unparsed_error(method, path, self._last) from None
            raise

    def _redirect_path(self, method: str, path: str, response: requests.Response) -> str | None:
        """Return the path to which an answer leads, None if it is no redirect; ``BmcError`` if it leads elsewhere.

        Like a link, a redirect may carry the BMC's own name: its path is asked for at the address that we know, and a
        command again as the command that it is, which ``requests`` would turn into a read.
        """
        if response.status_code not in _REDIRECTS or (response.status_code == _SEE_OTHER and method != "GET"):
            return None
        here = urlsplit(urljoin(self._url, path))
        try:
            there = urlsplit(urljoin(here.geturl(), response.headers.get("Location") or ""))
        except ValueError:
            raise _refused_error(f"the BMC at {self._url} redirects to an invalid address") from None
        if here.scheme == "http" and there.scheme == "https" and here.hostname == there.hostname:
            place = one_line(f"https://{there.netloc.rpartition('@')[2]}", _MAX_SHOWN_CHARACTERS)
            message = f"the BMC at {self._url} redirects http to https; set redfish_address to {place}"
            raise BmcError(message, transient=False, reason=Reason.BMC_NOT_REDFISH)
        following = local(there.geturl())
        if following not in ("", local(path)):
            return following
        if (here.scheme, here.netloc) == (there.scheme, there.netloc):
            raise _refused_error(f"the BMC at {self._url} redirects {one_line(path, _MAX_SHOWN_CHARACTERS)} to itself")
        where = one_line(f"{there.scheme}://{there.hostname}", _MAX_SHOWN_CHARACTERS)
        raise _refused_error(f"the BMC at {self._url} redirects to another host ({where}), which is not allowed")


def _refused_error(message: str) -> BmcError:
    return BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _resource(body: bytes) -> bytes:
    """Return the JSON of a resource, in which one odd value costs no others; ``InvalidAnswerError`` if it is none."""
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise InvalidAnswerError("empty")
    if start[:1] == b"<":
        raise InvalidAnswerError("a web page")
    if start[:1] != b"{":
        raise InvalidAnswerError("not a JSON object")
    try:
        return json_safety.readable(body)
    except json_safety.JsonTooLargeError as exc:
        raise InvalidAnswerError(f"JSON that is not decoded: {exc}") from None
    except json_safety.JsonError:
        raise InvalidAnswerError("not JSON") from None


def _has_resource(body: bytes) -> bool:
    try:
        return is_partial(mapping(json_safety.decode(json_safety.readable(body))))
    except json_safety.JsonError:
        return False


def is_partial(document: Document) -> bool:
    """Whether there is an error beside a resource, as OpenBMC answers where it could not find out everything."""
    return "error" in document and isinstance(document.get("@odata.id"), str) and not document.keys().isdisjoint(_OWN)


def _show_etag(response: requests.Response) -> None:
    """Have a resource's ETag in the header, where sushy looks for it; some services have it in the body only.

    They refuse writes without it all the same (DMTF/Redfish-Tacklebox#22, ansible-collections/community.general#11261).
    """
    if "ETag" not in response.headers and _ETAG.encode() in response.content:
        etag = mapping(json_safety.decode(response.content)).get(_ETAG)
        if isinstance(etag, str) and _is_etag(etag):
            response.headers["ETag"] = etag


def _is_etag(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()


def _monitor(response: requests.Response) -> str:
    """Return the path of the task monitor, or of the task; "" if the service says neither."""
    link: Any = response.headers.get("Location")
    if not link:
        with contextlib.suppress(json_safety.JsonError):
            link = mapping(json_safety.decode(response.content)).get("@odata.id")
    return local(link) if isinstance(link, str) else ""


def _unparsed_error(method: str, url: str, response: requests.Response) -> sushy.HTTPError:
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
