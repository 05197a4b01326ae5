"""An attached Ironic, whose nodes we inspect: the calls of its Bare Metal API that this needs.

Commands are fenced where their bytes are sent. Source: the Bare Metal API reference.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from ferroscope.config.options import IronicSettings
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.remote import IronicLockedError, IronicRefusedError, IronicUnavailableError
from ferroscope.contracts.store import StopFlag
from ferroscope.core.model import Document
from ferroscope.remote.bare_metal_http import AGAIN, PAGE_ITEMS, VERSION, BareMetalHttp, TransientHttpError, pages
from ferroscope.remote.bounded_http import HttpAnswer
from ferroscope.remote.retry import call_with_retries
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import Reason


class IronicLogin(Protocol):
    """Where Ironic is, and the headers that authenticate; both raise ``IronicUnavailableError`` or ``...Refused``."""

    def endpoint(self) -> str: ...

    def headers(self) -> Mapping[str, str]: ...

    def renew(self) -> bool:
        """Forget a rejected token; return whether there can be another one."""


class LoginSetupError(Exception):
    """``[ironic]`` is invalid; the message names the option."""


class NoLogin:
    """``auth_type = none``: Ironic does not authenticate callers."""

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
    "description": 97,
    "vendor": 100,
    "category": 101,
}
# Documents are larger than UUIDs, so a page has fewer; servers decide anyway.
_DOCUMENTS_PER_PAGE: Final = 200
_NEEDED_MINOR: Final = 37  # traits
_NEWEST_MINOR: Final = 103
_MAXIMUM_VERSION: Final = VERSION.replace("Version", "Maximum-Version")
_LOCKED: Final = b"is locked by host"
_NO_CONDUCTOR: Final = b"No conductor service registered"
# Seconds after an outage was noticed for which no other thread waits for the same time-out.
_QUIET_SECONDS: Final = 1.0


class BareMetalClient:
    """``contracts.remote.IronicClient``."""

    def __init__(self, settings: IronicSettings, login: IronicLogin, stop: StopFlag) -> None:
        self._settings = settings
        self._login = login
        self._stop = stop
        verify = {"cert_reqs": "CERT_NONE"} if settings.insecure else {"ca_certs": settings.cafile or None}
        client = {"cert_file": settings.certfile or None, "key_file": settings.keyfile or None}
        self._http = BareMetalHttp(settings.timeout, **verify, **client)
        self._lock = threading.Lock()
        self._base = ""
        self._minor = 0
        self._down_until = 0.0
        self.url = settings.endpoint_override or f"the cloud's service {settings.service_type}"

    def check(self) -> None:
        # One try each: a process does not wait for an unavailable Ironic before it starts.
        self._negotiate(retries=0)
        answer = self._patient("GET", f"{self._base}/v1/nodes?fields=uuid&limit=1", None, retries=0)
        if answer.status in (401, 403):
            raise IronicRefusedError(f"it does not allow listing nodes: {_detail(answer)}", status=answer.status)

    def list_tracked_uuids(self) -> frozenset[str]:
        """Return the UUIDs of all nodes, as ``contracts.remote.NodeSource`` wants them."""
        return frozenset(str(node["uuid"]) for node in self._list("nodes", {"uuid": 1}, limit=str(PAGE_ITEMS)))

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

    def power_problem(self, uuid: str) -> str | None:
        validation = _document(self._call("GET", f"/v1/nodes/{uuid}/validate", retries=0)).get("power")
        if not isinstance(validation, dict) or validation.get("result") is not False:
            return None
        return str(validation.get("reason") or "it gives no reason")

    def update_node(self, uuid: str, patch: Sequence[Document]) -> Document:
        return _document(self._call("PATCH", f"/v1/nodes/{uuid}", patch, repeat=False))

    def set_traits(self, uuid: str, traits: Sequence[str]) -> None:
        self._call("PUT", f"/v1/nodes/{uuid}/traits", {"traits": list(traits)})

    def add_port(self, port: Document) -> bool:
        minor = self._newest()
        fields = {name: value for name, value in port.items() if _PORT_FIELDS.get(name, 1) <= minor}
        return self._call("POST", "/v1/ports", fields, missing=(409,)).status != 409

    def update_port(self, uuid: str, patch: Sequence[Document]) -> bool:
        return self._call("PATCH", f"/v1/ports/{uuid}", patch, missing=(404,), repeat=False).status != 404

    def remove_port(self, uuid: str) -> None:
        self._call("DELETE", f"/v1/ports/{uuid}", missing=(404,))

    def power(self, uuid: str) -> Document:
        return _document(
            self._call("GET", f"/v1/nodes/{uuid}?fields=power_state,target_power_state,last_error,provision_state")
        )

    def set_power(self, uuid: str, target: str) -> None:
        self._call("PUT", f"/v1/nodes/{uuid}/states/power", {"target": target}, repeat=target != "rebooting")

    def boot_device(self, uuid: str) -> tuple[str | None, bool | None]:
        device = _document(self._call("GET", f"/v1/nodes/{uuid}/management/boot_device"))
        return device.get("boot_device"), device.get("persistent")

    def set_boot_device(self, uuid: str, device: str, *, persistent: bool) -> None:
        body = {"boot_device": device, "persistent": persistent}
        self._call("PUT", f"/v1/nodes/{uuid}/management/boot_device", body)

    def close(self) -> None:
        self._http.close()

    def _list(self, kind: str, fields: Mapping[str, int], **query: str) -> Iterator[Document]:
        def read(marker: str | None) -> tuple[list[Document], str | None]:
            if self._stop.is_set():
                raise IronicUnavailableError("the process is stopping before the list was read completely")
            where = urlencode({"limit": str(_DOCUMENTS_PER_PAGE)} | query | ({"marker": marker} if marker else {}))
            page = _document(self._call("GET", f"/v1/{kind}?{self._fields(fields)}&{where}"))
            items = page.get(kind)
            if not isinstance(items, list) or not all(isinstance(item, dict) and "uuid" in item for item in items):
                raise IronicUnavailableError(f"the response is not a list of {kind}")
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

    def _negotiate(self, *, retries: int | None = None) -> None:
        """Find out where Ironic is, and its newest microversion."""
        base = self._login.endpoint().rstrip("/").removesuffix("/v1")
        answer = self._patient("GET", f"{base}/v1", None, negotiating=True, retries=retries)
        highest = answer.headers.get(_MAXIMUM_VERSION, "")
        major, _, minor = highest.partition(".")
        if answer.status in (401, 403):
            raise IronicRefusedError(f"Ironic at {base} rejected the credentials", status=answer.status)
        if answer.status != 200 or major != "1" or not minor.isdigit():
            raise IronicRefusedError(f"no Ironic answers at {base} (HTTP {answer.status})", status=answer.status)
        if int(minor) < _NEEDED_MINOR:
            message = f"Ironic at {base} is too old: its newest API version is {highest}, 1.{_NEEDED_MINOR} is required"
            raise IronicRefusedError(message, status=answer.status)
        with self._lock:
            self._base, self._minor, self.url = base, min(int(minor), _NEWEST_MINOR), base

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        missing: Sequence[int] = (),
        repeat: bool = True,
        retries: int | None = None,
    ) -> HttpAnswer:
        """Return the answer if it is a success, or one of the statuses in ``missing``.

        ``repeat`` false: do not send it again if it is unknown whether it took effect.
        """
        try:
            minor = self._newest()
            answer = self._patient(method, f"{self._base}{path}", body, repeat=repeat, retries=retries)
        except IronicRefusedError as exc:  # it was accepted when this process started
            raise IronicUnavailableError(str(exc)) from exc
        if answer.status < 300 or (answer.status in missing and not _is_locked(answer)):
            return answer
        detail = _detail(answer)
        if _is_locked(answer):
            raise IronicLockedError(f"Ironic has locked the node: {detail}")
        if answer.status == 406:  # another release runs there now
            with self._lock:
                self._minor = 0 if self._minor == minor else self._minor
            raise IronicUnavailableError(f"Ironic no longer has API version 1.{minor}")
        if answer.status in (401, 403):
            raise IronicUnavailableError(f"Ironic does not allow {method} {_without_query(path)}: {detail}")
        if answer.status >= 500 or answer.status in (408, 429) or _NO_CONDUCTOR in answer.body:
            raise IronicUnavailableError(f"Ironic cannot serve {method} {_without_query(path)}: {detail}")
        raise IronicRefusedError(f"Ironic rejected {method} {_without_query(path)}: {detail}", status=answer.status)

    def _patient(
        self,
        method: str,
        url: str,
        body: Any,
        *,
        repeat: bool = True,
        negotiating: bool = False,
        retries: int | None = None,
    ) -> HttpAnswer:
        """Return the last answer of several tries; ``IronicUnavailableError`` if there was none."""
        if time.monotonic() < self._down_until:
            raise IronicUnavailableError(f"Ironic at {self.url} did not answer just now")
        content = None if body is None else msgspec.json.encode(body)

        def attempt() -> HttpAnswer:
            answer = self._once(method, url, content, negotiating=negotiating)
            if answer.status in AGAIN or _is_locked(answer):
                raise _NodeBusyError(answer)
            return answer

        pauses = [self._settings.retry_interval] * (self._settings.max_retries if retries is None else retries)
        try:
            return call_with_retries(
                attempt,
                pauses=pauses,
                is_retryable=lambda error, _pause: isinstance(
                    error, (_NodeBusyError, TransientHttpError) if repeat else _NodeBusyError
                ),
                stop=self._stop,
            )
        except _NodeBusyError as exc:
            return exc.answer
        except TransientHttpError as exc:
            self._down_until = time.monotonic() + _QUIET_SECONDS
            raise IronicUnavailableError(f"Ironic at {self.url}: {exc}") from exc

    def _once(self, method: str, url: str, content: bytes | None, *, negotiating: bool) -> HttpAnswer:
        version = {} if negotiating else {VERSION: f"1.{self._minor}"}
        described = {} if content is None else {"Content-Type": "application/json"}
        headers = {"Accept": "application/json", **described, **version}
        answer = self._http.send(method, url, {**headers, **self._login.headers()}, content)
        if answer.status == 401 and self._login.renew():
            answer = self._http.send(method, url, {**headers, **self._login.headers()}, content)
        return answer


@contextlib.contextmanager
def as_bmc_errors() -> Iterator[None]:
    """Turn the errors of a ``Registry`` into ``BmcError``, as workers expect from everything that acts on a machine."""
    try:
        yield
    except IronicUnavailableError as exc:
        raise BmcError(str(exc), transient=True, reason=Reason.REGISTRY_UNAVAILABLE, waits=True) from exc
    except IronicLockedError as exc:
        raise BmcError(str(exc), transient=True, reason=Reason.NODE_LOCKED, waits=True) from exc
    except IronicRefusedError as exc:
        raise BmcError(str(exc), transient=False, reason=Reason.REGISTRY_REFUSED) from exc


class _NodeBusyError(Exception):
    """Ironic asks to try again later."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__()
        self.answer = answer


def _is_locked(answer: HttpAnswer) -> bool:
    return answer.status == 409 and _LOCKED in answer.body


def _document(answer: HttpAnswer) -> Document:
    try:
        document = json_safety.decode(answer.body, max_containers=json_safety.MAX_DERIVED)
    except json_safety.JsonError as exc:
        raise IronicUnavailableError("the response is not JSON") from exc
    if not isinstance(document, dict):
        raise IronicUnavailableError("the response is not an object")
    return document


def _detail(answer: HttpAnswer) -> str:
    """Return the status and Ironic's message, whose JSON contains a second JSON document as text."""
    text = ""
    try:
        inner = json_safety.decode(answer.body).get("error_message", "")
        fault = json_safety.decode_own(inner) if isinstance(inner, str) else inner
        text = str(fault.get("faultstring", ""))
    except (json_safety.JsonError, AttributeError):
        text = ""
    return f"HTTP {answer.status}{f': {text[:500]}' if text else ''}"


def _without_query(path: str) -> str:
    return path.partition("?")[0]
