"""The Bare Metal API of another service, over HTTP: which nodes it has, and an attached Ironic whose nodes we inspect.

Every response is limited in time and size. Lists are read page by page, by the server's ``next`` links; only the marker
of a link is used, because the URL comes from our configuration. Commands are fenced where their bytes are sent.
Source: the Bare Metal API reference.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
import urllib3

from ferroscope.config.options import IronicSettings
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import RegistryLockedError, RegistryRefusedError, RegistryUnavailableError
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.remote.bounded_http import Deadline, DeadlineError, bound
from ferroscope.remote.retry import backoff, call_with_retries

T = TypeVar("T")

_PAGE: Final = 1000
_MAX_BODY: Final = 8 * 1024 * 1024  # bytes; a thousand UUIDs take 300 KB
_MAX_NODES: Final = 1_000_000
_PAUSE: Final = 0.2  # seconds before the first retry; backoff each time
_AGAIN: Final = frozenset({429, 502, 503, 504})
_VERSION: Final = "X-OpenStack-Ironic-API-Version"


class Answer(msgspec.Struct, frozen=True):
    """Status, headers and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _TransientError(Exception):
    """No usable answer, this time."""


class Http:
    """Requests to one server, each with a deadline; thread-safe. ``tls``: keyword arguments of urllib3's pool."""

    def __init__(self, timeout: float, **tls: Any) -> None:
        self._timeout = timeout
        self._http = urllib3.PoolManager(timeout=timeout, retries=False, maxsize=32, **tls)
        bound(self._http)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """Return the complete response; ``_TransientError`` if there was none, ``RegistryUnavailableError``."""
        try:
            with Deadline(self._timeout) as deadline:
                answer = self._http.request(
                    method, url, body=body, headers=headers, redirect=False, preload_content=False
                )
                content = answer.read(_MAX_BODY + 1)
                deadline.left()  # headers cut off by the deadline look like a response without a body
                if len(content) <= _MAX_BODY:
                    answer.read()  # raises if the body is shorter than announced
                    answer.release_conn()
                else:
                    answer.close()
        except (urllib3.exceptions.HTTPError, OSError, DeadlineError) as exc:
            raise _TransientError(f"request failed: {type(exc).__name__}") from exc
        if len(content) > _MAX_BODY:
            raise RegistryUnavailableError(f"a page is longer than {_MAX_BODY} bytes")
        return Answer(answer.status, answer.headers, content)

    def close(self) -> None:
        self._http.clear()


def pages(read: Callable[[str | None], tuple[list[T], str | None]], ident: Callable[[T], str]) -> Iterator[T]:
    """Yield the items of all pages; ``read`` returns those after a marker, and the link to the next page.

    ``RegistryUnavailableError`` if the list may be incomplete.
    """
    seen: set[str] = set()
    marker: str | None = None
    while True:
        items, link = read(marker)
        fresh = [item for item in items if ident(item) not in seen]
        seen.update(map(ident, fresh))
        yield from fresh
        if link is None and len(items) < _PAGE:
            return
        if not fresh:
            raise RegistryUnavailableError("the server repeated a page, so the list may be incomplete")
        if len(seen) > _MAX_NODES:
            raise RegistryUnavailableError(f"the list has more than {_MAX_NODES} items")
        marker = _marker(link) or ident(items[-1])


def _marker(link: str | None) -> str | None:
    """Return the marker of a link to the next page."""
    try:
        return parse_qs(urlsplit(link or "").query).get("marker", [None])[0]
    except ValueError:
        return None


# Which nodes another service has: all that ``[registry] url`` needs.


class _Item(msgspec.Struct):
    uuid: str


class _Page(msgspec.Struct):
    nodes: list[_Item]
    next: str | None = None


class IronicSource:
    """``contracts.remote.NodeSource``; ``url`` is the API's base.

    A request may take ``timeout`` seconds, response included; each page has ``retries``, with delays that ``stop``
    interrupts.
    """

    def __init__(self, url: str, *, timeout: float, retries: int, stop: StopFlag) -> None:
        self._url = url.rstrip("/")
        self._retries = retries
        self._stop = stop
        self._http = Http(timeout)
        self._decoder = msgspec.json.Decoder(_Page)

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes there; ``RegistryUnavailableError`` if the list is incomplete."""
        return frozenset(item.uuid for item in pages(self._page, lambda item: item.uuid))

    def _page(self, marker: str | None) -> tuple[list[_Item], str | None]:
        if self._stop.is_set():
            raise RegistryUnavailableError("the process is stopping before the list was read completely")
        try:
            page = call_with_retries(
                lambda: self._once(marker),
                pauses=backoff(_PAUSE, self._retries),
                is_retryable=lambda error, _pause: isinstance(error, _TransientError),
                stop=self._stop,
            )
        except _TransientError as exc:
            raise RegistryUnavailableError(str(exc)) from exc
        return page.nodes, page.next

    def _once(self, marker: str | None) -> _Page:
        query = {"fields": "uuid", "limit": str(_PAGE)} | ({"marker": marker} if marker else {})
        headers = {_VERSION: "1.31", "Accept": "application/json"}
        answer = self._http.send("GET", f"{self._url}/v1/nodes?{urlencode(query)}", headers)
        if answer.status in _AGAIN:
            raise _TransientError(f"HTTP {answer.status}")
        if answer.status in (401, 403):
            raise RegistryUnavailableError(f"HTTP {answer.status}: this service is not allowed to list the nodes")
        if answer.status != 200:
            raise RegistryUnavailableError(f"HTTP {answer.status}")
        try:
            return self._decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise RegistryUnavailableError("the response is not a list of nodes") from exc


# An attached Ironic.


class Login(Protocol):
    """Where Ironic is, and the headers that authenticate; both raise ``RegistryUnavailableError`` or ``...Refused``."""

    def endpoint(self) -> str: ...

    def headers(self) -> Mapping[str, str]: ...

    def renew(self) -> bool:
        """Forget a rejected token; return whether there can be another one."""


class LoginSetupError(Exception):
    """``[ironic]`` is invalid; the message names the option."""


class NoLogin:
    """``auth_type = none``: Ironic does not authenticate anybody."""

    def __init__(self, settings: IronicSettings) -> None:
        self._url = settings.endpoint_override

    def endpoint(self) -> str:
        return self._url

    def headers(self) -> Mapping[str, str]:
        return {}

    def renew(self) -> bool:
        return False


# Fields of nodes and ports that we read, and their microversions; Ironic rejects those that are newer than its own.
_NODE_FIELDS: Final = {
    "uuid": 1,
    "name": 5,
    "driver": 1,
    "driver_info": 1,
    "properties": 1,
    "extra": 1,
    "instance_uuid": 1,
    "maintenance": 1,
    "maintenance_reason": 1,
    "power_state": 1,
    "target_power_state": 1,
    "provision_state": 1,
    "resource_class": 21,
    "traits": 37,
    "conductor_group": 46,
    "protected": 48,
    "protected_reason": 48,
    "owner": 50,
    "description": 51,
    "retired": 61,
    "retired_reason": 61,
    "lessee": 65,
    "shard": 82,
    "parent_node": 83,
    "disable_power_off": 95,
}
_PORT_FIELDS: Final = {
    "uuid": 1,
    "node_uuid": 1,
    "address": 1,
    "extra": 1,
    "local_link_connection": 19,
    "pxe_enabled": 19,
    "physical_network": 34,
    "name": 88,
}
# Documents are larger than UUIDs, so a page has fewer; servers decide anyway.
_DOCUMENTS: Final = 200
_NEEDED: Final = 37  # traits
_NEWEST: Final = 96
_LOCKED: Final = b"is locked by host"
_NO_CONDUCTOR: Final = b"No conductor service registered"
# For so many seconds after an outage was noticed no other thread waits for the same time-out.
_QUIET: Final = 1.0


class IronicRegistry:
    """``contracts.remote.Registry``."""

    def __init__(self, settings: IronicSettings, login: Login, stop: StopFlag) -> None:
        self._settings = settings
        self._login = login
        self._stop = stop
        verify = {"cert_reqs": "CERT_NONE"} if settings.insecure else {"ca_certs": settings.cafile or None}
        client = {"cert_file": settings.certfile or None, "key_file": settings.keyfile or None}
        self._http = Http(settings.timeout, **verify, **client)
        self._lock = threading.Lock()
        self._base = ""
        self._minor = 0
        self._down_until = 0.0
        self.url = settings.endpoint_override or f"the cloud's service {settings.service_type}"

    def check(self) -> None:
        self._negotiate()
        answer = self._patient("GET", f"{self._base}/v1/nodes?fields=uuid&limit=1", None)
        if answer.status in (401, 403):
            raise RegistryRefusedError(f"it does not allow listing nodes: {_detail(answer)}", status=answer.status)

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes, as ``contracts.remote.NodeSource`` wants them."""
        return frozenset(str(node["uuid"]) for node in self._list("nodes", {"uuid": 1}, limit=str(_PAGE)))

    def nodes(self) -> Iterator[Document]:
        children = {"include_children": "true"} if self._newest() >= _NODE_FIELDS["parent_node"] else {}
        return self._list("nodes", _NODE_FIELDS, **children)

    def ports(self) -> Iterator[Document]:
        return self._list("ports", _PORT_FIELDS)

    def node(self, ident: str) -> Document | None:
        answer = self._call("GET", f"/v1/nodes/{quote(ident, safe='')}?{self._fields(_NODE_FIELDS)}", missing=(404,))
        return None if answer.status == 404 else _document(answer)

    def ports_of(self, uuid: str) -> Sequence[Document]:
        return list(self._list("ports", _PORT_FIELDS, node=uuid))

    def port_with(self, mac: str) -> Document | None:
        return next(self._list("ports", _PORT_FIELDS, address=mac), None)

    def update_node(self, uuid: str, patch: Sequence[Document]) -> None:
        self._call("PATCH", f"/v1/nodes/{uuid}", patch, repeat=False)

    def set_traits(self, uuid: str, traits: Sequence[str]) -> None:
        self._call("PUT", f"/v1/nodes/{uuid}/traits", {"traits": list(traits)})

    def add_port(self, port: Document) -> bool:
        minor = self._newest()
        known = {name: value for name, value in port.items() if _PORT_FIELDS.get(name, 1) <= minor}
        return self._call("POST", "/v1/ports", known, missing=(409,)).status != 409

    def update_port(self, uuid: str, patch: Sequence[Document]) -> bool:
        return self._call("PATCH", f"/v1/ports/{uuid}", patch, missing=(404,), repeat=False).status != 404

    def remove_port(self, uuid: str) -> None:
        self._call("DELETE", f"/v1/ports/{uuid}", missing=(404,))

    def power(self, uuid: str) -> tuple[str | None, str | None]:
        states = _document(self._call("GET", f"/v1/nodes/{uuid}?fields=power_state,last_error"))
        return states.get("power_state"), states.get("last_error")

    def set_power(self, uuid: str, target: str) -> None:
        self._call("PUT", f"/v1/nodes/{uuid}/states/power", {"target": target}, repeat=target != "rebooting")

    def boot_device(self, uuid: str) -> tuple[str | None, bool | None]:
        found = _document(self._call("GET", f"/v1/nodes/{uuid}/management/boot_device"))
        return found.get("boot_device"), found.get("persistent")

    def set_boot_device(self, uuid: str, device: str, *, persistent: bool) -> None:
        body = {"boot_device": device, "persistent": persistent}
        self._call("PUT", f"/v1/nodes/{uuid}/management/boot_device", body)

    def close(self) -> None:
        self._http.close()

    def _list(self, kind: str, fields: Mapping[str, int], **query: str) -> Iterator[Document]:
        def read(marker: str | None) -> tuple[list[Document], str | None]:
            if self._stop.is_set():
                raise RegistryUnavailableError("the process is stopping before the list was read completely")
            where = urlencode({"limit": str(_DOCUMENTS)} | query | ({"marker": marker} if marker else {}))
            page = _document(self._call("GET", f"/v1/{kind}?{self._fields(fields)}&{where}"))
            items = page.get(kind)
            if not isinstance(items, list) or not all(isinstance(one, dict) and "uuid" in one for one in items):
                raise RegistryUnavailableError(f"the response is not a list of {kind}")
            link = page.get("next")
            return items, link if isinstance(link, str) else None

        return pages(read, lambda item: str(item["uuid"]))

    def _fields(self, fields: Mapping[str, int]) -> str:
        minor = self._newest()
        return "fields=" + ",".join(name for name, since in fields.items() if since <= minor)

    def _newest(self) -> int:
        if not self._minor:
            self._negotiate()
        return self._minor

    def _negotiate(self) -> None:
        """Find out where Ironic is, and its newest microversion."""
        base = self._login.endpoint().rstrip("/").removesuffix("/v1")
        answer = self._patient("GET", f"{base}/v1", None, negotiating=True)
        highest = answer.headers.get(_VERSION.replace("Version", "Maximum-Version"), "")
        major, _, minor = highest.partition(".")
        if answer.status in (401, 403):
            raise RegistryRefusedError(f"Ironic at {base} rejected the credentials", status=answer.status)
        if answer.status != 200 or major != "1" or not minor.isdigit():
            raise RegistryRefusedError(f"there is no Ironic at {base} (HTTP {answer.status})", status=answer.status)
        if int(minor) < _NEEDED:
            message = f"Ironic at {base} is too old: its newest API version is {highest}, 1.{_NEEDED} is required"
            raise RegistryRefusedError(message, status=answer.status)
        with self._lock:
            self._base, self._minor, self.url = base, min(int(minor), _NEWEST), base

    def _call(
        self, method: str, path: str, body: Any = None, *, missing: Sequence[int] = (), repeat: bool = True
    ) -> Answer:
        """Return the answer if it is a success, or one of the statuses in ``missing``.

        ``repeat`` false: do not send it again if it is unknown whether it took effect.
        """
        try:
            minor = self._newest()
            answer = self._patient(method, f"{self._base}{path}", body, repeat=repeat)
        except RegistryRefusedError as exc:  # it was accepted when this process started
            raise RegistryUnavailableError(str(exc)) from exc
        if answer.status < 300 or (answer.status in missing and not _is_locked(answer)):
            return answer
        detail = _detail(answer)
        if _is_locked(answer):
            raise RegistryLockedError(f"Ironic has locked the node: {detail}")
        if answer.status == 406:  # another release runs there now
            with self._lock:
                self._minor = 0 if self._minor == minor else self._minor
            raise RegistryUnavailableError(f"Ironic no longer has API version 1.{minor}")
        if answer.status in (401, 403):
            raise RegistryUnavailableError(f"Ironic does not allow {method} {_shown(path)}: {detail}")
        if answer.status >= 500 or answer.status in (408, 429) or _NO_CONDUCTOR in answer.body:
            raise RegistryUnavailableError(f"Ironic cannot serve {method} {_shown(path)}: {detail}")
        raise RegistryRefusedError(f"Ironic rejected {method} {_shown(path)}: {detail}", status=answer.status)

    def _patient(self, method: str, url: str, body: Any, *, repeat: bool = True, negotiating: bool = False) -> Answer:
        """Return the last answer of several tries; ``RegistryUnavailableError`` if there was none."""
        if time.monotonic() < self._down_until:
            raise RegistryUnavailableError(f"Ironic at {self.url} did not answer just now")
        content = None if body is None else msgspec.json.encode(body)

        def attempt() -> Answer:
            answer = self._once(method, url, content, negotiating=negotiating)
            if answer.status in _AGAIN or _is_locked(answer):
                raise _BusyError(answer)
            return answer

        pauses = [self._settings.retry_interval] * self._settings.max_retries
        try:
            return call_with_retries(
                attempt,
                pauses=pauses,
                is_retryable=lambda error, _pause: isinstance(
                    error, (_BusyError, _TransientError) if repeat else _BusyError
                ),
                stop=self._stop,
            )
        except _BusyError as exc:
            return exc.answer
        except _TransientError as exc:
            self._down_until = time.monotonic() + _QUIET
            raise RegistryUnavailableError(f"Ironic at {self.url}: {exc}") from exc

    def _once(self, method: str, url: str, content: bytes | None, *, negotiating: bool) -> Answer:
        version = {} if negotiating else {_VERSION: f"1.{self._minor}"}
        headers = {"Accept": "application/json", "Content-Type": "application/json", **version}
        answer = self._http.send(method, url, {**headers, **self._login.headers()}, content)
        if answer.status == 401 and self._login.renew():
            answer = self._http.send(method, url, {**headers, **self._login.headers()}, content)
        return answer


@contextlib.contextmanager
def as_bmc_errors() -> Iterator[None]:
    """Turn the errors of a ``Registry`` into ``BmcError``, as workers expect from everything that acts on a machine."""
    try:
        yield
    except RegistryUnavailableError as exc:
        raise BmcError(str(exc), transient=True, reason=Reason.REGISTRY_UNAVAILABLE, waits=True) from exc
    except RegistryLockedError as exc:
        raise BmcError(str(exc), transient=True, reason=Reason.NODE_LOCKED, waits=True) from exc
    except RegistryRefusedError as exc:
        raise BmcError(str(exc), transient=False, reason=Reason.REGISTRY_REFUSED) from exc


class _BusyError(Exception):
    """Ironic asks to try again later."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def _is_locked(answer: Answer) -> bool:
    return answer.status == 409 and _LOCKED in answer.body


def _document(answer: Answer) -> Document:
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise RegistryUnavailableError("the response is not JSON") from exc
    if not isinstance(found, dict):
        raise RegistryUnavailableError("the response is not an object")
    return found


def _detail(answer: Answer) -> str:
    """Return the status and Ironic's message, whose JSON contains a second JSON document as text."""
    text = ""
    try:
        inner = msgspec.json.decode(answer.body).get("error_message", "")
        fault = msgspec.json.decode(inner) if isinstance(inner, str) else inner
        text = str(fault.get("faultstring", ""))
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        text = ""
    return f"HTTP {answer.status}{f': {text[:500]}' if text else ''}"


def _shown(path: str) -> str:
    return path.partition("?")[0]
