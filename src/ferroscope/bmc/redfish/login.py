"""How to log in to a Redfish service: with a session, with the password in each request, or first one, then the other.

BMCs have as few as four sessions. Each session that we open is deleted, whatever address its ``Location`` has; where
all are in use, the password is sent with each request instead, unless ``redfish_auth_type`` is ``session``.
"""

from __future__ import annotations

from typing import Any, Final

from sushy import auth as sushy_auth
from sushy import exceptions as sushy

from ferroscope.bmc.redfish.connector import local
from ferroscope.bmc.redfish.failures import (
    InvalidAnswerError,
    is_rejected_login,
    is_temporary,
    sessions_are_exhausted,
)
from ferroscope.bmc.redfish.info import Access
from ferroscope.core import json_safety
from ferroscope.hardware.parts import mapping
from ferroscope.remote.deadline import current

LOGOUT_TIMEOUT_SECONDS: Final = 2.0  # seconds for closing a session
# How often a login that is refused for a while is tried before the password is sent with each request.
_MAX_REFUSED_LOGINS: Final = 2


class NoAuth(sushy_auth.AuthBase):  # type: ignore[misc]
    """For services without credentials."""

    def _do_authenticate(self) -> None:
        pass

    def can_refresh_session(self) -> bool:
        return False


class BasicAuth(sushy_auth.BasicAuth):  # type: ignore[misc]
    """The password in each request."""


class SessionAuth(sushy_auth.AuthBase):  # type: ignore[misc]
    """A session, and nothing else. ``opened``: the service has opened one, so the password is right."""

    _connector: Any
    _root_resource: Any

    def __init__(self, username: str | None = None, password: str | None = None) -> None:
        super().__init__(username, password)
        self._session = ""
        self.opened = False

    def _do_authenticate(self) -> None:
        root = mapping(self._root_resource.json)
        path = mapping(mapping(root.get("Links")).get("Sessions")).get("@odata.id")
        if not isinstance(path, str) or not path:
            service = (
                mapping(root.get("SessionService")).get("@odata.id") or f"{self._root_resource.path}SessionService"
            )
            path = f"{str(service).rstrip('/')}/Sessions"
        self._connector._sessions_uri = path  # a refused login is no reason to log in
        answer = self._connector.post(path, data={"UserName": self._username, "Password": self._password})
        token = answer.headers.get("X-Auth-Token")
        self._session = session_of(answer)
        if not token:
            self.close()
            raise sushy.MissingXAuthToken(method="POST", url=path, response=answer)
        self._connector.set_http_session_auth(token)
        self.opened = True

    def can_refresh_session(self) -> bool:
        return False

    def close(self) -> None:
        """Delete the session."""
        session, self._session = self._session, ""
        if session:
            self._connector.delete(session)


class OneLogin(SessionAuth):
    """A login that sends the password once if it is wrong: where sessions are refused for it, nothing else is tried.

    ``proven``: the service has opened a session. Otherwise the password is sent with each request, as yet unproven.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(access.username, access.password)
        self._kind = access.auth_type
        self.proven = False

    def _do_authenticate(self) -> None:
        try:
            if self._kind != "basic":
                super()._do_authenticate()
                self.proven = True
                return
        except (sushy.ConnectionError, InvalidAnswerError):
            raise
        except sushy.SushyError as exc:
            # 403 is no wrong password: an account that has to change its own may be refused a session.
            if (
                self._kind == "session"
                or is_rejected_login(exc)
                or (is_temporary(exc) and not sessions_are_exhausted(exc))
            ):
                raise
        current().seconds_left()
        self._connector.set_http_basic_auth(self._username, self._password)


def session_of(answer: Any) -> str:
    """Return the path of a session that was opened; some services say it in the body only."""
    location = answer.headers.get("Location") or answer.headers.get("Content-Location")
    if not location:
        try:
            location = mapping(json_safety.decode(answer.content)).get("@odata.id")
        except json_safety.JsonError:
            location = None
    return local(location) if isinstance(location, str) else ""


class SessionElseBasicAuth(SessionAuth):
    """A session, or basic authentication if the service has no sessions, or none left.

    ``refused`` counts the logins that were refused for a while, over all tries of a client.
    """

    def __init__(self, refused: list[Exception], username: str | None = None, password: str | None = None) -> None:
        super().__init__(username, password)
        self._refused = refused

    def _do_authenticate(self) -> None:
        try:
            super()._do_authenticate()
        except (sushy.ConnectionError, InvalidAnswerError):
            raise
        except sushy.SushyError as exc:
            if is_temporary(exc) and not sessions_are_exhausted(exc):
                self._refused.append(exc)
                if len(self._refused) < _MAX_REFUSED_LOGINS:
                    raise
            current().seconds_left()
            self._connector.set_http_basic_auth(self._username, self._password)
