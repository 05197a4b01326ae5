"""OpenStack Swift: PUT, GET and DELETE of one object with a token, which is renewed if it is rejected.

Tokens come from Keystone (``auth_version`` 3) or from Swift's own authentication (1), which is one GET. The container
is created if it does not exist. Source: the Object Storage API reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from keystoneauth1 import exceptions
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.remote.bounded_http import HttpAnswer
from ferroscope.remote.calls import Deadline
from ferroscope.remote.session import BoundedSession
from ferroscope.storage.object_http import ObjectHttp, RetryPolicy, StorageAccess

SERVICE: Final = "object-store"
# Advice after a refused login, because Keystone does not give the reason.
_OF_A_USER: Final = "username, password, user_domain_name, project_name and project_domain_name, and the user's roles"
_OF_AN_APPLICATION: Final = "application_credential_id and application_credential_secret, and whether it has expired"


class Keystone:
    """Keystone tokens, by password or application credential. Thread-safe if one thread logs in at a time.

    keystoneauth1 talks to Keystone; this class limits each try in time and each response in size, allows no redirect to
    another host, ignores the environment, and turns errors into messages without secrets. Source: the Identity API
    reference, v3.
    """

    def __init__(self, settings: SwiftSettings, patience: RetryPolicy) -> None:
        self._settings = settings
        self._timeout = timeout = patience.timeout
        self._patience = patience
        self._url = _with_version(settings.auth_url)
        self._auth = _plugin(settings, self._url)
        self._session: Any = Session(
            auth=self._auth,
            session=BoundedSession(self._url),
            verify=settings.ca_file or True,
            timeout=timeout,
            redirect=False,
        )

    def access(self) -> StorageAccess:
        """Return a token that was not rejected yet, and the account's URL; ``ObjectStoreError``."""
        login = self._log_in_again()
        return StorageAccess(login.auth_token, self._settings.endpoint or self._endpoint(login.service_catalog))

    def _log_in_again(self) -> Any:
        return self._patience.call_with_retries(self._log_in, lambda exc: isinstance(exc, _TransientSwiftError))

    def _log_in(self) -> Any:
        with Deadline(self._timeout) as deadline:
            try:
                self._auth.invalidate()
                return self._auth.get_access(self._session)
            except Exception as exc:  # noqa: BLE001  # the boundary: keystoneauth1 stumbles over what is no Keystone
                if deadline.has_expired:
                    raise _TransientSwiftError(f"Keystone at {self._url} timed out after {self._timeout:g} s") from None
                raise self._classify(exc) from None

    def _endpoint(self, catalog: Any) -> str:
        swift = self._settings
        wanted = {"service_type": SERVICE, "interface": swift.interface, "region_name": swift.region or None}
        if urls := catalog.get_urls(**wanted):
            return str(urls[0])
        endpoints = [
            f"{endpoint.interface} in {endpoint.region_name}"
            for endpoint in catalog.get_endpoints_data(service_type=SERVICE).get(SERVICE, ())
        ]
        where = f" in the region {swift.region}" if swift.region else ""
        available = f"available: {', '.join(endpoints)}" if endpoints else f"it has no {SERVICE} for this project"
        raise ObjectStoreError(
            f"the Keystone catalog has no {swift.interface} {SERVICE} endpoint{where}; {available}; "
            "correct [swift] region or interface, or set endpoint"
        )

    def _classify(self, error: Exception) -> ObjectStoreError:
        where = f"Keystone at {self._url}"
        if isinstance(error, exceptions.Unauthorized):
            checks = _OF_AN_APPLICATION if self._settings.application_credential_id else _OF_A_USER
            return ObjectStoreError(f"{where} refused the login; check [swift] {checks}")
        if isinstance(error, exceptions.NotFound):
            return ObjectStoreError(f"{where} was not found (HTTP 404); correct [swift] auth_url")
        if isinstance(error, exceptions.HttpError):
            text = f"{where}: HTTP {error.http_status}"
            later = error.http_status >= 500 or error.http_status in (408, 429)
            return _TransientSwiftError(text) if later else ObjectStoreError(f"{text} at login; check [swift]")
        if isinstance(error, exceptions.SSLError):
            return ObjectStoreError(f"{where}: the certificate is not trusted; check it and [swift] ca_file")
        if isinstance(error, OSError):  # connection errors are wrapped by keystoneauth1
            return ObjectStoreError(f"cannot use [swift] ca_file: {error}")
        if isinstance(error, exceptions.ConnectionError):
            return _TransientSwiftError(f"cannot reach {where}; check the service and [swift] auth_url")
        return ObjectStoreError(f"{where}: invalid response ({type(error).__name__}); correct [swift] auth_url")


class _TransientSwiftError(ObjectStoreError):
    """A transient error."""


def _with_version(url: str) -> str:
    """Return the URL of version 3, which operators configure with or without ``/v3``."""
    base = url.rstrip("/")
    return base if base.endswith("/v3") else f"{base}/v3"


def _plugin(swift: SwiftSettings, url: str) -> Any:
    if swift.application_credential_id:
        return v3.ApplicationCredential(
            auth_url=url,
            application_credential_id=swift.application_credential_id,
            application_credential_secret=swift.application_credential_secret,
        )
    return v3.Password(
        auth_url=url,
        username=swift.username,
        password=swift.password,
        user_domain_name=swift.user_domain_name,
        project_name=swift.project_name,
        project_domain_name=swift.project_domain_name,
    )


# Advice for Keystone users, by Swift's status code.
_ADVICE: Final = {
    401: "it does not accept Keystone tokens; check authtoken in the pipeline of its proxy",
    403: "give the user a role listed in Swift's operator_roles, and check the account's quota",
    413: "the account or the container is full; raise its quota",
}


class SwiftStore:
    """``contracts.remote.ObjectStore``."""

    name = "swift"

    def __init__(
        self, settings: SwiftSettings, patience: RetryPolicy, *, log_in: Callable[[], StorageAccess] | None = None
    ) -> None:
        """``log_in``: returns a token that was not rejected yet, instead of the login that ``settings`` describe."""
        self._settings = settings
        self._http = ObjectHttp("the object store swift", patience, ca_file=settings.ca_file)
        if log_in is None:
            log_in = self._tempauth if settings.auth_version == "1" else Keystone(settings, patience).access
        self._log_in = log_in
        self._lock = threading.Lock()
        self._access: StorageAccess | None = None

    def put(self, key: str, content: bytes) -> None:
        answer = self._send("PUT", key, content)
        if answer.status == 404:
            created = self._send("PUT", None)
            if created.status not in (201, 202):
                raise self._refusal(created, f"create the container {self._settings.container}")
            answer = self._send("PUT", key, content)
        if answer.status != 201:
            raise self._refusal(answer, "store an object")

    def get(self, key: str) -> bytes:
        answer = self._send("GET", key)
        if answer.status == 404:
            raise ObjectMissingError(f"object {key} is missing in container {self._settings.container}")
        if answer.status != 200:
            raise self._refusal(answer, "read an object")
        return answer.body

    def delete(self, key: str) -> None:
        answer = self._send("DELETE", key)
        if answer.status not in (204, 404):
            raise self._refusal(answer, "delete an object")

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, key: str | None, body: bytes | None = None) -> HttpAnswer:
        access = self._current()
        answer = self._try(method, key, body, access)
        if answer.status == 401:
            answer = self._try(method, key, body, self._current(refused=access))
        return answer

    def _refusal(self, answer: HttpAnswer, action: str) -> ObjectStoreError:
        """Return the error, with advice if the configuration is the likely cause."""
        refused = self._http.refusal(answer, action)
        advice = _ADVICE.get(answer.status) if self._settings.auth_version != "1" else None
        return refused if advice is None else ObjectStoreError(f"{refused}; {advice}")

    def _try(self, method: str, key: str | None, body: bytes | None, access: StorageAccess) -> HttpAnswer:
        place = self._settings.container if key is None else f"{self._settings.container}/{self._settings.prefix}{key}"
        headers = {"X-Auth-Token": access.token}
        if key is None or body is not None:
            headers["Content-Type"] = "application/octet-stream"
        return self._http.send(method, f"{access.url.rstrip('/')}/{quote(place)}", lambda: headers, body)

    def _current(self, refused: StorageAccess | None = None) -> StorageAccess:
        with self._lock:
            if self._access is None or self._access is refused:
                self._access = self._log_in()
            return self._access

    def _tempauth(self) -> StorageAccess:
        swift = self._settings
        headers = {"X-Auth-User": swift.username, "X-Auth-Key": swift.password}
        answer = self._http.send("GET", swift.auth_url, lambda: headers)
        token, url = answer.headers.get("X-Auth-Token"), answer.headers.get("X-Storage-Url")
        if answer.status not in (200, 204) or not token or not url:
            raise self._http.refusal(answer, "log in")
        return StorageAccess(token, swift.endpoint or url)
