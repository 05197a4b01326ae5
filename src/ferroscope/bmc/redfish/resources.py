"""Resources of a Redfish service: requests, links, pages, and documents with odd values.

Links and redirects of a BMC may carry its own name or an internal address (stmcginnis/gofish#77,
DMTF/python-redfish-library#11). Only their path is used, at the address that we know, so that credentials never go
elsewhere. sushy's retries and logins are disabled: they sleep beyond any deadline, and leave sessions behind.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from sushy import connector as sushy_connector
from sushy import exceptions as sushy
from sushy.resources import base

from ferroscope.bmc.redfish.failures import (
    InvalidAnswerError,
    has_resource,
    is_partial,
    is_rejected_login,
    is_temporary,
    readable_resource,
    unparsed_error,
)
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document
from ferroscope.remote.addresses import Networks
from ferroscope.remote.command_fence import TooLateError
from ferroscope.remote.deadline import current
from ferroscope.remote.session import BoundedSession
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import one_line
from ferroscope_client.hardware.readings import mapping, number

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.driver import RedfishAccess

_REDIRECTS: Final = frozenset({300, 301, 302, 303, 307, 308})
_MAX_HOPS: Final = 5
# Errors have some kB: a longer one is cut, so only its status counts. ``Reader`` keeps longer resources, decoded.
_MAX_ERROR_BYTES, _MAX_KEPT_BYTES = 64 * 1024, 64 * 1024
_ETAG: Final = "@odata.etag"
_PRECONDITIONS: Final = frozenset({HTTPStatus.PRECONDITION_FAILED, HTTPStatus.PRECONDITION_REQUIRED})
_COMPRESSED: Final = re.compile(r"[-;](?:gzip|br|deflate)\"\Z")
# What sushy's fields and their adapters raise for a value of another type.
_STUMBLES: Final = (sushy.SushyError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
MAX_PAGES: Final = 64
_MAX_REQUESTS, _MAX_FAILURES, _MAX_NOTED = 500, 5, 20
# Seconds for one resource; a service that hangs on one may still answer for the others.
_RESOURCE_SECONDS: Final = 10.0
_MAX_PATH_CHARACTERS: Final = 500
_MAX_SHOWN_CHARACTERS: Final = 120
_NEXT: Final = frozenset({"members@odata.nextlink", "@odata.nextlink"})


class Connector(sushy_connector.Connector):  # type: ignore[misc]
    """sushy's connector with the call's deadline as time-out. A lost read is repeated once, a command never.

    ``status``: of the last answer, 0 if there was none. ``task``: the path of the task that still carries out the last
    command (DSP0266, 13.5.6), "" if it is done.
    """

    _session: Any

    def __init__(self, access: RedfishAccess, allowed: Networks) -> None:
        super().__init__(access.url, verify=access.verify, response_callback=self._note, server_side_retries=1)
        plain, self._session = self._session, BoundedSession(access.url, access.tls_context(), allowed)
        self._session.headers.update(plain.headers)
        del self._session.headers["Connection"]  # sushy's: a handshake for each request; ours end with the call
        plain.close()
        self._last: Any = None  # the last answer
        self._read: dict[str, requests.Response] = {}  # since the last command
        self.task = ""

    def _note(self, response: requests.Response) -> None:
        self._last = response
        if response.status_code >= 500 and response.request.method == "GET" and has_resource(response.content):
            response.status_code = HTTPStatus.OK
        if response.status_code >= 400:
            # sushy decodes it without bounds and writes all of it into a message: 4 MB of lists took 1.7 s.
            response._content = response.content[:_MAX_ERROR_BYTES]

    def forget(self) -> None:
        """Forget what was read: another call begins."""
        self._read.clear()
        self._session.disconnect()  # a BMC has few connections, and closes idle ones at any time

    def _op(self, method: str, path: str = "", **kwargs: Any) -> Any:
        """Send a request. A read is sent once in a call, unless a command may have changed the resource meanwhile."""
        requested = path = local(path)
        if method != "GET":
            self._read.clear()
        elif requested in self._read:
            return self._read[requested]
        kwargs |= {"server_side_retries_left": 0, "allow_reauth": False, "allow_redirects": False}
        # A call consists of many requests: one lost response must not repeat all of them. A command may have arrived.
        may_repeat, seconds = method == "GET", kwargs.get("timeout") or math.inf
        for _ in range(_MAX_HOPS):
            if method != "GET":
                self._session.disconnect()  # the BMC may have closed an idle connection
            self._last = None
            kwargs["timeout"] = min(seconds, current().seconds_left())
            try:
                response = super()._op(method, path, **kwargs)
            except sushy.ConnectionError as exc:
                if not may_repeat or isinstance(exc.__context__, requests.exceptions.SSLError):
                    raise
                may_repeat = False
                continue
            except Exception as exc:  # noqa: BLE001  # sushy stumbles over many answers
                raise self._complete_error(exc, method, path) from exc.__cause__
            following = self._redirect_path(method, path, response)
            if following is None:
                break
            path = following
        else:
            raise self._refusal("redirects without end")
        if method == "GET":
            response._content = readable_resource(response.content)
            _show_etag(response)
            current().progress(requested)
            if len(response.content) <= _MAX_KEPT_BYTES:
                self._read[requested] = response
        else:
            self.task = created_path(response) if response.status_code == HTTPStatus.ACCEPTED else ""
            current().progress()
        return response

    def patch(self, path: str = "", data: Any = None, headers: Any = None, etag: str | None = None, **more: Any) -> Any:
        """Write with the ETag; if the service says that it does not match, with what it may want instead."""
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
        """Yield values for If-Match: the caller's ETag, the present one, both in other forms, none, and any."""
        yield caller_tag
        current_tag = self.tag(path)
        for tag in filter(None, (current_tag, caller_tag)):
            strong = '"' + tag.removeprefix("W/").strip('"') + '"'  # some quote it twice, or not at all
            yield from (tag, strong, _COMPRESSED.sub('"', strong))  # some web servers mark what they would compress
        yield from (None, "*")

    def tag(self, path: str) -> str | None:
        """Return the ETag of a resource, also one that it shows as a number."""
        with contextlib.suppress(sushy.HTTPError, InvalidAnswerError):
            answer = self.get(path=path)
            etag = mapping(json_safety.decode(answer.content)).get(_ETAG)
            return answer.headers.get("ETag") or (f'"{etag}"' if isinstance(etag, int) else None)
        return None

    @property
    def status(self) -> int:
        return 0 if self._last is None else int(self._last.status_code)

    def _complete_error(self, error: Exception, method: str, path: str) -> Exception:
        """Return the error with the answer: sushy keeps neither headers nor a body that is not JSON."""
        if isinstance(error, sushy.HTTPError):
            error.response = self._last
            # It stumbles over an error without a message when it looks for what an insertion lacks.
            error.code, error.detail = (value if isinstance(value, str) else "" for value in (error.code, error.detail))
        elif not isinstance(error.__context__, sushy.HTTPError) and self.status >= 400:
            # It also stumbles over error messages of another shape than the standard's; the status remains.
            error = unparsed_error(method, path, self._last)
        return error

    def _redirect_path(self, method: str, path: str, response: requests.Response) -> str | None:
        """Return the path to which an answer redirects, None if it does not; ``BmcError`` if it leads elsewhere.

        A redirected command is sent again as the same command, which ``requests`` would turn into a read.
        """
        # After a command, 303 means that it was carried out.
        if response.status_code not in _REDIRECTS or (response.status_code == 303 and method != "GET"):
            return None
        here = urlsplit(urljoin(self._url, path))
        try:
            there = urlsplit(urljoin(here.geturl(), response.headers.get("Location") or ""))
        except ValueError:
            raise self._refusal("redirects to an invalid address") from None
        if here.scheme == "http" and there.scheme == "https" and here.hostname == there.hostname:
            place = one_line(f"https://{there.netloc.rpartition('@')[2]}", _MAX_SHOWN_CHARACTERS)
            hint = f"redirects http to https; set redfish_address to {place}"
            raise self._refusal(hint, Reason.BMC_NOT_REDFISH)
        following = local(there.geturl())
        if following not in ("", local(path)):
            return following
        if (here.scheme, here.netloc) == (there.scheme, there.netloc):
            raise self._refusal(f"redirects {one_line(path, _MAX_SHOWN_CHARACTERS)} to itself")
        where = one_line(f"{there.scheme}://{there.hostname}", _MAX_SHOWN_CHARACTERS)
        raise self._refusal(f"redirects to another host ({where}), which is not allowed")

    def _refusal(self, why: str, reason: Reason = Reason.BMC_REFUSED) -> BmcError:
        return BmcError(f"the BMC at {self._url} {why}", transient=False, reason=reason)


def local(link: str) -> str:
    """Return path and query of a link, which may be a URL with any host; "" if it cannot be used."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(link)
        path = parts.path if parts.path.startswith("/") or not parts.netloc else f"/{parts.path}"
        # Two slashes would begin a host.
        path = f"/{path.lstrip('/')}" if path.startswith("//") else path
        return f"{path}?{parts.query}" if parts.query else path
    return ""


def created_path(response: requests.Response) -> str:
    """Return the path of the session or task that a command has created; some services name it in the body only."""
    link: Any = response.headers.get("Location") or response.headers.get("Content-Location")
    if not link:
        with contextlib.suppress(json_safety.JsonError):
            link = mapping(json_safety.decode(response.content)).get("@odata.id")
    return local(link) if isinstance(link, str) else ""


def _show_etag(response: requests.Response) -> None:
    """Copy the ETag of a resource to the header, where sushy expects it; some services have it in the body only.

    They refuse writes without it all the same (DMTF/Redfish-Tacklebox#22, ansible-collections/community.general#11261).
    """
    if "ETag" not in response.headers and _ETAG.encode() in response.content:
        etag = mapping(json_safety.decode(response.content)).get(_ETAG)
        if isinstance(etag, str) and etag.isascii() and etag.isprintable():
            response.headers["ETag"] = etag


class Lenient:
    """Stands before sushy's class in the list of bases, so that one odd property is None, and costs no others.

    sushy refuses a whole resource with a property of another type than the standard's: a memory size with its unit, an
    empty date.
    """

    def _parse_attributes(self, json_doc: Document) -> Document:
        body = mapping(json_doc)
        for name, field in base._collect_fields(self):
            try:
                value = field._load(body, self)
            except _STUMBLES:
                value = _load_parts(field, body, self)
            setattr(self, name, _without_incomplete(value) if isinstance(value, base.CompositeField) else value)
        return {}  # sushy only logs it


def _load_parts(field: Any, body: Document, resource: Any) -> Any:
    """Return the value of a property that cannot be loaded; if it consists of parts, load each part by itself."""
    if not isinstance(field, base.CompositeField):
        return field._default
    for name in field._path:
        body = mapping(body.get(name))
    composite = copy.copy(field)
    for name, part in field._subfields.items():
        try:
            value = part._load(body, resource)
        except _STUMBLES:
            value = _load_parts(part, body, resource)
        setattr(composite, name, value)
    return composite


def _without_incomplete(composite: Any) -> Any:
    """Return a property that has parts, None if it lacks a required one."""
    for name, part in composite._subfields.items():
        value = getattr(composite, name)
        if isinstance(value, base.CompositeField):
            value = _without_incomplete(value)
            setattr(composite, name, value)
        if value is None and part._required:
            return None
    return composite


class Reader:
    """One walk through a service. Collections may have pages, and several links may lead to one part.

    A part that cannot be read is noted, and does not end the rest. Source: DSP0266, 7.7;
    DMTF/Redfish-Mockup-Server#43.

    ``patient``: errors that may pass are raised, so that the call is tried again, instead of noted. ``failures`` names
    the resources that could not be read, and why; ``error`` is the exception of the last one. ``complete``: none was
    left out for lack of time or requests.
    """

    def __init__(self, connector: Any, requests: int = _MAX_REQUESTS, *, patient: bool = False) -> None:
        self._connector = connector
        self._left = requests
        self._patient = patient
        self._failed = 0  # in a row
        self._read: dict[str, Document] = {}
        self.failures: list[str] = []
        self.error: Exception | None = None
        self.complete = True

    def get(self, link: Any) -> Document:
        """Return the resource at ``link``, which is read once; empty if it cannot be read."""
        path = path_of(link)
        if not path:
            return {}
        key = path_key(path)
        if key not in self._read:
            if not self._left or self._failed >= _MAX_FAILURES or not current().remaining():
                self.complete = False
                return {}
            self._left -= 1
            resource: Document = {}
            try:
                answer = self._connector.get(path=path, timeout=_RESOURCE_SECONDS)
                resource = mapping(json_safety.decode(answer.content))
            except TooLateError:
                raise
            except Exception as exc:  # noqa: BLE001  # the boundary: connections fail, and parsers stumble, in any way
                self._handle(exc, path)
            else:
                self._failed = 0
            if is_partial(resource):
                self._note(path, "in part, with an error")
            self._read[key] = {"@odata.id": path} | resource if resource else {}
        return self._read[key]

    def _handle(self, error: Exception, path: str) -> None:
        """Note why a resource cannot be read; raise the error if the reader is patient and it may pass."""
        code = error.status_code if isinstance(error, sushy.HTTPError) else None
        is_rejected = is_rejected_login(error)
        if is_rejected:
            self._failed = _MAX_FAILURES  # many 401 may lock the account
        elif not isinstance(error, BmcError):  # a redirect to elsewhere
            self._failed += code is None or code >= 500
        may_pass = self._failed >= _MAX_FAILURES if code is None else is_rejected or is_temporary(error)
        if self._patient and may_pass:
            raise error
        self.error = error
        why = str(error) if isinstance(error, BmcError) else type(error).__name__
        self._note(path, why if code is None else f"HTTP {code}")

    def _note(self, path: str, why: str) -> None:
        if len(self.failures) < _MAX_NOTED:
            self.failures.append(": ".join(one_line(text, _MAX_SHOWN_CHARACTERS) for text in (path, why)))

    def resources(self, links: Any, limit: int) -> Iterator[Document]:
        """Yield the resources in a list of links, or of resources that the service has put there itself; each once."""
        seen: set[str] = set()
        for link in (links if isinstance(links, list) else [links])[:limit]:
            path, embedded = path_of(link), mapping(link)
            if path_key(path) in seen:
                continue
            seen.update({path_key(path)} - {""})
            if resource := embedded if len(embedded) > 1 else self.get(link):
                yield resource

    def members(self, link: Any, limit: int) -> Iterator[Document]:
        """Yield the first ``limit`` members of a collection, each once."""
        yield from self.resources(self.links(link)[:limit], limit)

    def links(self, link: Any) -> list[Any]:
        """Return the links on all pages of a collection, or the members that the service puts there instead."""
        links: list[Any] = []
        page: Document = {}
        for page in self.pages(self.get(link), path_of(link)):
            links += page_members(page)
        count = number(page.get("Members@odata.count"))
        if count is not None and count > len(links) > 0:
            self._note(path_of(link), f"lists {len(links)} of its {count:g} members")
        return links

    def array(self, resource: Document, name: str) -> list[Any]:
        """Return the links in an array of a resource, which may go on elsewhere, or in a collection in its place."""
        value = resource.get(name)
        if not isinstance(value, list):
            return self.links(value)
        first = {"Members": value, "@odata.nextLink": resource.get(f"{name}@odata.nextLink")}
        pages = self.pages(first, path_of(resource))
        return [link for page in pages for link in page_members({"Members": page.get(name)} | page)]

    def pages(self, page: Document, at: str = "", limit: int = MAX_PAGES) -> Iterator[Document]:
        """Yield a collection's page, whose path is ``at``, and the following ones, at most ``limit``, each once."""
        at = at or path_of(page)
        seen = {at}
        for _ in range(limit):
            yield page
            at = following(page, at)
            page = self.get(at) if at not in seen else {}
            if not page:
                return
            seen.add(at)


def following(page: Document, at: str) -> str:
    """Return the path of the next page, "" if there is none; it may be relative to this page, which is ``at``."""
    names = (name for name in page if name.lower() in _NEXT)
    link = next((value for name in names if (value := page[name])), None)
    link = mapping(link).get("@odata.id", link)
    if not isinstance(link, str):
        return ""
    return path_of(link) or path_of(urljoin(at.partition("?")[0].rstrip("/"), local(link)))


def page_members(page: Document) -> list[Any]:
    """Return the members on a page of a collection."""
    members = page.get("Members")
    # DMTF/libredfish#27: a single member without its list.
    return members if isinstance(members, list) else [members] if isinstance(members, dict) else []


def path_of(link: Any) -> str:
    """Return the path that a link refers to, "" if it is invalid."""
    value = mapping(link).get("@odata.id", link)
    if not isinstance(value, str) or len(value) > _MAX_PATH_CHARACTERS or not value or "\0" in value:
        return ""
    path = local(value.strip().partition("#")[0])
    return path if path.startswith("/") else f"/{path}" if path.startswith("redfish/") else ""


def path_key(path: str) -> str:
    """Return the part that the paths of one resource have in common: some services end them with a slash at times."""
    return path.rstrip("/")


def is_absent(resource: Document) -> bool:
    """Whether a part is not there: an empty bay, slot or socket."""
    return _state(resource) == "absent"


def is_gone(resource: Document) -> bool:
    """Whether a part is not there, or is switched off."""
    return _state(resource) in ("absent", "disabled")


def _state(resource: Document) -> str:
    return str(mapping(resource.get("Status")).get("State")).lower()
