"""A report of what a BMC answers: read-only requests, and its answers as ``redaction`` lets them through.

It uses nothing that the driver knows of vendors, because people make a report where the driver fails. It writes nothing
to the BMC but one login, which it ends. Requests, time (the caller's deadline) and size are limited.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec
import requests

from ferroscope.bmc.redfish.failures import is_partial
from ferroscope.bmc.redfish.redaction import Redactor
from ferroscope.bmc.redfish.resources import created_path
from ferroscope.bmc.redfish.session import LOGOUT_TIMEOUT_SECONDS
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document
from ferroscope.remote.addresses import Networks
from ferroscope.remote.deadline import Deadline, DeadlineError, current
from ferroscope.remote.session import BoundedSession
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import Reason
from ferroscope_client.hardware.readings import mapping

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.driver import RedfishAccess

FORMAT: Final = "ferroscope-bmc-report-1"
MAX_BYTES: Final = 1024 * 1024
_MAX_REQUESTS: Final = 200
_MAX_MEMBERS: Final = 32
_MAX_PATH: Final = 1000
# A BMC that settles is asked again, a few times in all; each answer is in the report.
_MAX_RETRIES: Final = 6
_PAUSE_SECONDS: Final = 1.0
# Seconds for one answer: a service that hangs on one may still answer for the others.
_ANSWER_SECONDS: Final = 10.0
# Answers that will be the same again.
_FINAL: Final = (401, 403, 405, 410, 501)
# The properties whose links are followed, in all documents.
_FOLLOWED: Final = frozenset({
    "Systems", "Managers", "SessionService", "Members", "Members@odata.nextLink", "@Redfish.ActionInfo",
    "SettingsObject", "VirtualMedia", "ManagedBy", "Chassis", "EthernetInterfaces", "Processors", "Storage",
    "SimpleStorage", "Drives",
})  # fmt: skip
# Not read: these sessions belong to others.
_SESSIONS: Final = "/sessionservice/sessions"


def collect(
    access: RedfishAccess, allowed: Networks, pause: Callable[[float], object], *, identities: bool
) -> Document:
    """Return the report of a service; ``pause`` waits. ``BmcError``, requests' errors and ``DeadlineError``."""
    with contextlib.closing(_Service(access, allowed, pause, identities=identities)) as service:
        return service.report()


class _Service:
    """One service, for one report."""

    def __init__(
        self, access: RedfishAccess, allowed: Networks, pause: Callable[[float], object], *, identities: bool
    ) -> None:
        self._access = access
        self._pause = pause
        self._host = urlsplit(access.url).netloc
        hosts = (self._host, urlsplit(access.url).hostname or "", access.username or "")
        self._redactor = Redactor((access.password,), hosts, identities=identities)
        self._identities = identities
        self._session = BoundedSession(access.url, access.tls_context(), allowed)
        self._answers: list[Document] = []
        self._size = 0
        self._complete = True
        self._retries = _MAX_RETRIES
        self._logout = ""

    def close(self) -> None:
        """End the login, if there is one."""
        with contextlib.closing(self._session):
            if self._logout:
                with contextlib.suppress(Exception), Deadline(LOGOUT_TIMEOUT_SECONDS):
                    self._send("DELETE", self._logout)

    def report(self) -> Document:
        root = self._read(self._access.root)
        authentication = self._log_in(root)
        self._walk(root)
        report = {
            "format": FORMAT,
            "identities": self._identities,
            "complete": self._complete,
            "authentication": authentication,
            "system": None if self._access.system is None else self._redactor.path(self._access.system),
            "answers": self._answers,
        }
        checked: Document = self._redactor.remove_identities(report)
        return checked

    def _walk(self, root: Document) -> None:
        """Read what is linked, the nearest first; of several systems, only the node's is read in depth."""
        seen = {self._access.root.rstrip("/")}
        waiting = deque(_links(root))
        while waiting:
            path = waiting.popleft()
            key = path.rstrip("/")
            if key in seen or _SESSIONS in key.lower():
                continue
            if len(seen) >= _MAX_REQUESTS or self._size > MAX_BYTES or current().remaining() <= LOGOUT_TIMEOUT_SECONDS:
                self._complete = False
                return
            seen.add(key)
            document = self._read(path)
            if not self._is_other_system(key):
                waiting += _links(document)

    def _is_other_system(self, path: str) -> bool:
        own_system = (self._access.system or path).rstrip("/")
        systems_path = f"{self._access.root}Systems/".lower()
        return path.lower().startswith(systems_path) and not f"{path}/".lower().startswith(f"{own_system}/".lower())

    def _read(self, path: str) -> Document:
        """Return a resource, asked for again while the BMC seems to settle; empty if it cannot be read."""
        while True:
            status, document = self._try_read(path)
            if status == 401 and len(self._answers) > 1:
                raise self._rejected_login()
            if document or status in _FINAL or not self._retries:
                return document
            self._retries -= 1
            self._pause(_PAUSE_SECONDS)

    def _try_read(self, path: str) -> tuple[int, Document]:
        try:
            response = self._note("GET", path)
        except (requests.exceptions.RequestException, DeadlineError) as exc:
            if not self._answers:
                raise  # it was never reached
            self._answers.append({"method": "GET", "path": self._redactor.path(path), "error": type(exc).__name__})
            return 0, {}
        document = _decode(response.content)
        return response.status_code, document if response.status_code < 300 or is_partial(document) else {}

    def _log_in(self, root: Document) -> str:
        """Open a session, else authenticate each request; return which."""
        access = self._access
        if access.username is None:
            return "none"
        if access.auth_type != "basic":
            path = mapping(mapping(root.get("Links")).get("Sessions")).get("@odata.id")
            path = str(path) if _is_path(path) else f"{access.root}SessionService/Sessions"
            response = self._note("POST", path, {"UserName": access.username, "Password": access.password})
            is_open, token = response.status_code < 300, response.headers.get("X-Auth-Token")
            self._logout = created_path(response) if is_open else ""
            if is_open and token:
                self._session.headers["X-Auth-Token"] = token
                return "session"
            if response.status_code == 401:
                raise self._rejected_login()
        self._session.auth = (access.username, access.password)
        return "basic"

    def _rejected_login(self) -> BmcError:
        message = f"report at {self._access.url}: the credentials were rejected (HTTP 401)"
        return BmcError(message, transient=False, reason=Reason.BMC_CREDENTIALS)

    def _note(self, method: str, path: str, body: Document | None = None) -> requests.Response:
        """Send a request and note its answer."""
        response = self._send(method, path, body)
        document = _decode(response.content)
        answer: Document = {
            "method": method,
            "path": self._redactor.path(path),
            "status": response.status_code,
            "milliseconds": round(response.elapsed.total_seconds() * 1000, -1),
            "headers": self._redactor.headers(response.headers.items(), self._host),
            "kind": "json" if document else "empty" if not response.content.strip() else "other",
            "body": self._redactor.document(document) if document else None,
        }
        self._size += len(msgspec.json.encode(answer))
        self._answers.append(answer)
        return response

    def _send(self, method: str, path: str, body: Document | None = None) -> requests.Response:
        url = urljoin(self._access.url, path)
        if not self._session.belongs(url):
            message = f"the BMC at {self._access.url} links to another host, which is not allowed"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        if method != "GET":
            self._session.disconnect()  # a BMC may have closed it meanwhile; a read is repeated, and a login is not
        headers = {"OData-Version": "4.0", "Accept": "application/json", "Accept-Encoding": "identity"}
        seconds = min(_ANSWER_SECONDS, current().seconds_left())
        return self._session.request(
            method, url, json=body, headers=headers, timeout=seconds, verify=self._access.verify, allow_redirects=False
        )


def _decode(content: bytes) -> Document:
    with contextlib.suppress(json_safety.JsonError):
        return mapping(json_safety.decode(json_safety.readable(content)))
    return {}


def _links(document: Document) -> Iterator[str]:
    """Yield the paths that a document links to and that a report follows."""
    pending = deque[tuple[str, Any]](document.items())
    while pending:
        key, value = pending.popleft()
        if key in _FOLLOWED:
            for link in value[:_MAX_MEMBERS] if isinstance(value, list) else [value]:
                path = link.get("@odata.id") if isinstance(link, dict) else link
                if _is_path(path):
                    yield str(path).partition("#")[0]
        elif isinstance(value, dict):
            pending += value.items()


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and not value.startswith("//") and len(value) < _MAX_PATH
