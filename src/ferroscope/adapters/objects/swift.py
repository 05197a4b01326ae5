"""OpenStack Swift: PUT, GET and DELETE of one object with a token, which is fetched anew when it is refused.

Keystone (``auth_version`` 3) is spoken to by keystoneauth1, Swift's own authentication (1) is one
GET. The container is made when it is missing. Source: the Object Storage API reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from ferroscope.adapters.objects.http import Answer, Http
from ferroscope.config.settings import SwiftSettings
from ferroscope.ports.objects import ObjectMissingError, ObjectStoreError


class Access(msgspec.Struct, frozen=True):
    """A token, and the account's address."""

    token: str
    url: str


class SwiftStore:
    """``ports.objects.ObjectStore``."""

    name = "swift"

    def __init__(self, settings: SwiftSettings, *, timeout: float, retries: int) -> None:
        self._settings = settings
        self._http = Http("the object store swift", timeout=timeout, retries=retries, ca_file=settings.ca_file)
        self._log_in: Callable[[], Access] = (
            self._tempauth if settings.auth_version == "1" else Keystone(settings, timeout=timeout).access
        )
        self._lock = threading.Lock()
        self._access: Access | None = None

    def put(self, key: str, content: bytes) -> None:
        answer = self._send("PUT", key, content)
        if answer.status == 404:
            made = self._send("PUT", None)
            if made.status not in (201, 202):
                raise self._http.refusal(made, f"make the container {self._settings.container}")
            answer = self._send("PUT", key, content)
        if answer.status != 201:
            raise self._http.refusal(answer, "store an object")

    def get(self, key: str) -> bytes:
        answer = self._send("GET", key)
        if answer.status == 404:
            raise ObjectMissingError(f"the object {key} is not in the container {self._settings.container}")
        if answer.status != 200:
            raise self._http.refusal(answer, "give an object")
        return answer.body

    def delete(self, key: str) -> None:
        answer = self._send("DELETE", key)
        if answer.status not in (204, 404):
            raise self._http.refusal(answer, "delete an object")

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, key: str | None, body: bytes | None = None) -> Answer:
        access = self._current()
        answer = self._try(method, key, body, access)
        if answer.status == 401:
            answer = self._try(method, key, body, self._current(refused=access))
        return answer

    def _try(self, method: str, key: str | None, body: bytes | None, access: Access) -> Answer:
        place = self._settings.container if key is None else f"{self._settings.container}/{self._settings.prefix}{key}"
        headers = {"X-Auth-Token": access.token}
        if key is None or body is not None:
            headers["Content-Type"] = "application/octet-stream"
        return self._http.send(method, f"{access.url.rstrip('/')}/{quote(place)}", lambda: headers, body)

    def _current(self, refused: Access | None = None) -> Access:
        with self._lock:
            if self._access is None or self._access is refused:
                self._access = self._log_in()
            return self._access

    def _tempauth(self) -> Access:
        swift = self._settings
        headers = {"X-Auth-User": swift.username, "X-Auth-Key": swift.password}
        answer = self._http.send("GET", swift.auth_url, lambda: headers)
        token, url = answer.headers.get("X-Auth-Token"), answer.headers.get("X-Storage-Url")
        if answer.status not in (200, 204) or not token or not url:
            raise self._http.refusal(answer, "let us in")
        return Access(token, swift.endpoint or url)


class Keystone:
    """Tokens of Keystone, for a project's account."""

    def __init__(self, settings: SwiftSettings, *, timeout: float) -> None:
        from keystoneauth1 import session
        from keystoneauth1.identity import v3

        self._settings = settings
        password = v3.Password(
            auth_url=settings.auth_url,
            username=settings.username,
            password=settings.password,
            user_domain_name=settings.user_domain_name,
            project_name=settings.project_name,
            project_domain_name=settings.project_domain_name,
        )
        self._session: Any = session.Session(auth=password, verify=settings.ca_file or True, timeout=timeout)

    def access(self) -> Access:
        """Return a token that was not refused yet, and where the account is; ``ObjectStoreError``."""
        from keystoneauth1.exceptions import ClientException

        swift = self._settings
        try:
            self._session.invalidate()
            token = self._session.get_token()
            url = swift.endpoint or self._session.get_endpoint(
                service_type="object-store", interface=swift.interface, region_name=swift.region or None
            )
        except ClientException as exc:
            raise ObjectStoreError(f"Keystone did not let us in to swift: {type(exc).__name__}") from exc
        if not token or not url:
            raise ObjectStoreError("Keystone names no address of the object store; set [swift] endpoint")
        return Access(token, url)
