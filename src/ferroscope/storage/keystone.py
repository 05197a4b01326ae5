"""Tokens of Keystone for a project's account in Swift: by password, or by an application credential.

keystoneauth1 speaks to it; here are what bounds it (a hard deadline for each try, answers of a
bounded size, no redirect to another host, nothing of the environment) and what its errors mean:
what happened, why, and what to do, never with a secret. Source: the Identity API reference, v3.
"""

from __future__ import annotations

from typing import Any, Final

from keystoneauth1 import exceptions
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.remote.bounded_http import Deadline
from ferroscope.remote.session import BoundedSession
from ferroscope.storage.object_http import Access, Patience

SERVICE: Final = "object-store"
# What to look at where a log-in is refused: Keystone never says why.
_OF_A_USER: Final = "username, password, user_domain_name, project_name and project_domain_name, and the user's roles"
_OF_AN_APPLICATION: Final = "application_credential_id and application_credential_secret, and whether it has expired"


class Keystone:
    """Thread-safe where one thread logs in at a time."""

    def __init__(self, settings: SwiftSettings, patience: Patience) -> None:
        self._settings = settings
        self._timeout = timeout = patience.timeout
        self._patience = patience
        self._url = _versioned(settings.auth_url)
        self._auth = _plugin(settings, self._url)
        self._session: Any = Session(
            auth=self._auth,
            session=BoundedSession(self._url),
            verify=settings.ca_file or True,
            timeout=timeout,
            redirect=False,
        )

    def access(self) -> Access:
        """Return a token that was not refused yet, and where the account is; ``ObjectStoreError``."""
        given = self._log_in_again()
        return Access(given.auth_token, self._settings.endpoint or self._endpoint(given.service_catalog))

    def _log_in_again(self) -> Any:
        return self._patience.until_it_works(self._log_in, lambda exc: isinstance(exc, _AwayError))

    def _log_in(self) -> Any:
        with Deadline(self._timeout) as deadline:
            try:
                self._auth.invalidate()
                return self._auth.get_access(self._session)
            except Exception as exc:  # noqa: BLE001  # the boundary: keystoneauth1 stumbles over what is no Keystone
                if deadline.expired:
                    raise _AwayError(f"Keystone at {self._url} did not answer within {self._timeout:g} s") from None
                raise self._judged(exc) from None

    def _endpoint(self, catalog: Any) -> str:
        swift = self._settings
        wanted = {"service_type": SERVICE, "interface": swift.interface, "region_name": swift.region or None}
        if urls := catalog.get_urls(**wanted):
            return str(urls[0])
        there = [
            f"{one.interface} in {one.region_name}"
            for one in catalog.get_endpoints_data(service_type=SERVICE).get(SERVICE, ())
        ]
        where = f" in the region {swift.region}" if swift.region else ""
        known = f"it has: {', '.join(there)}" if there else f"it has no {SERVICE} at all for this project"
        raise ObjectStoreError(
            f"Keystone's catalogue has no {swift.interface} {SERVICE}{where}; {known}; "
            "correct [swift] region or interface, or set endpoint"
        )

    def _judged(self, error: Exception) -> ObjectStoreError:
        where = f"Keystone at {self._url}"
        if isinstance(error, exceptions.Unauthorized):
            what = _OF_AN_APPLICATION if self._settings.application_credential_id else _OF_A_USER
            return ObjectStoreError(f"{where} refused the log-in; check [swift] {what}")
        if isinstance(error, exceptions.NotFound):
            return ObjectStoreError(f"{where} is none: it answered 404; correct [swift] auth_url")
        if isinstance(error, exceptions.HttpError):
            text = f"{where} answered {error.http_status}"
            later = error.http_status >= 500 or error.http_status in (408, 429)
            return _AwayError(text) if later else ObjectStoreError(f"{text} to the log-in; check [swift]")
        if isinstance(error, exceptions.SSLError):
            return ObjectStoreError(f"{where} is not trusted; check its certificate and [swift] ca_file")
        if isinstance(error, OSError):  # of a connection's, keystoneauth1 makes its own errors
            return ObjectStoreError(f"[swift] ca_file cannot be used: {error}")
        if isinstance(error, exceptions.ConnectionError):
            return _AwayError(f"{where} does not answer; is it there, and is [swift] auth_url right?")
        return ObjectStoreError(f"{where} does not answer like one ({type(error).__name__}); correct [swift] auth_url")


class _AwayError(ObjectStoreError):
    """It may help to ask again."""


def _versioned(url: str) -> str:
    """Return where version 3 is: operators write it with and without."""
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
