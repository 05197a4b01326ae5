"""Callers with identities that a test chooses: one more method of authentication, over the real application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferroscope.api.auth.authentication import Authentication
from ferroscope.api.auth.failures import FailedLogins
from ferroscope.api.auth.identity import Identity
from ferroscope.api.errors import UnauthorizedError
from ferroscope.config.options import ApiSettings
from ferroscope.runtime.system import SystemClock
from tests.api.service import Client, Service


class ByName:
    """X-Auth-Token is the name of an identity."""

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        self._identities = identities

    def claimed_name(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-auth-token")

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        name = headers.get("x-auth-token")
        if name is None:
            return None
        if name not in self._identities:
            raise UnauthorizedError("unknown")
        return self._identities[name]


def service_for(url: str, identities: Mapping[str, Identity], **options: Any) -> Service:
    """Return a service that knows these callers."""
    authentication = Authentication([ByName(identities)], FailedLogins(ApiSettings()), SystemClock())
    return Service(url, authentication=authentication, **options)


class As:
    """The client as one caller; "" sends no credentials."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._headers = {"X-Auth-Token": name} if name else {}

    def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self._client.call(method, path, body, headers=self._headers | more.pop("headers", {}), **more)
