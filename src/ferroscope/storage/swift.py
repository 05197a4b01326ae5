"""OpenStack Swift: PUT, GET and DELETE of one object with a token, which is fetched anew when it is refused.

Tokens are Keystone's (``auth_version`` 3, see ``keystone``) or of Swift's own authentication (1), which is one
GET. The container is made when it is missing. Source: the Object Storage API reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.storage.object_http import Access, Answer, Http, Patience

# What Keystone's users meet, by Swift's answer.
_ADVICE: Final = {
    401: "it does not take Keystone's tokens: look at authtoken in its proxy's pipeline",
    403: "give the user a role in the project that Swift's operator_roles names, and look at the account's quota",
    413: "the account or the container is full; raise its quota",
}


class SwiftStore:
    """``contracts.remote.ObjectStore``."""

    name = "swift"

    def __init__(self, settings: SwiftSettings, patience: Patience) -> None:
        self._settings = settings
        self._http = Http("the object store swift", patience, ca_file=settings.ca_file)
        self._log_in: Callable[[], Access] = self._tempauth
        if settings.auth_version != "1":
            from ferroscope.storage.keystone import Keystone

            self._log_in = Keystone(settings, patience).access
        self._lock = threading.Lock()
        self._access: Access | None = None

    def put(self, key: str, content: bytes) -> None:
        answer = self._send("PUT", key, content)
        if answer.status == 404:
            made = self._send("PUT", None)
            if made.status not in (201, 202):
                raise self._refusal(made, f"make the container {self._settings.container}")
            answer = self._send("PUT", key, content)
        if answer.status != 201:
            raise self._refusal(answer, "store an object")

    def get(self, key: str) -> bytes:
        answer = self._send("GET", key)
        if answer.status == 404:
            raise ObjectMissingError(f"the object {key} is not in the container {self._settings.container}")
        if answer.status != 200:
            raise self._refusal(answer, "give an object")
        return answer.body

    def delete(self, key: str) -> None:
        answer = self._send("DELETE", key)
        if answer.status not in (204, 404):
            raise self._refusal(answer, "delete an object")

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, key: str | None, body: bytes | None = None) -> Answer:
        access = self._current()
        answer = self._try(method, key, body, access)
        if answer.status == 401:
            answer = self._try(method, key, body, self._current(refused=access))
        return answer

    def _refusal(self, answer: Answer, what: str) -> ObjectStoreError:
        """Return the error, with what to do about what a configuration leads to."""
        refused = self._http.refusal(answer, what)
        advice = _ADVICE.get(answer.status) if self._settings.auth_version != "1" else None
        return refused if advice is None else ObjectStoreError(f"{refused}; {advice}")

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
