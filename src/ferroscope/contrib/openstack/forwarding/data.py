"""Reads introspections that have ended, with their data, from the API of an ironic-inspector beside this service.

It is the one to which callbacks are forwarded, and asked with the credentials of ``[ironic]`` if it wants any. Source:
the Introspection API reference.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.contracts.remote import ForwardError, Introspected, IronicRefusedError, IronicUnavailableError
from ferroscope.contrib.openstack.client import IronicLogin
from ferroscope.remote.bare_metal_http import BareMetalHttp, TransientHttpError
from ferroscope.remote.bounded_http import HttpAnswer
from ferroscope_client.core import json_safety

# The first version with the unprocessed data.
_VERSION: Final = {"X-OpenStack-Ironic-Inspector-API-Version": "1.17"}
_CALLBACK: Final = "/continue"


class _ForwardingStatus(msgspec.Struct):
    finished: bool
    state: str
    started_at: str | None = None
    finished_at: str | None = None
    error: str | None = None


class InspectorData:
    """``contracts.remote.IntrospectionSource``."""

    def __init__(self, settings: InspectorSettings, login: IronicLogin | None) -> None:
        self._root = settings.forward_unknown_to.rstrip("/").removesuffix(_CALLBACK)
        self._login = login
        self._http = BareMetalHttp(settings.forward_timeout, ca_certs=settings.forward_ca_file or None)

    def ended(self, node: str) -> Introspected | None:
        path = f"/introspection/{quote(node, safe='')}"
        try:
            status = json_safety.decode(self._get(path).body, _ForwardingStatus)
            if not status.finished or status.started_at is None or status.finished_at is None:
                return None
            started, finished = _seconds(status.started_at), _seconds(status.finished_at)
        except (json_safety.JsonError, ValueError) as exc:
            raise ForwardError(f"it does not answer like ironic-inspector: {exc}") from None
        bodies = {}
        for processed, suffix in ((True, "/data"), (False, "/data/unprocessed")):
            answer = self._get(path + suffix, missing=404)
            if answer.status != 404:
                bodies[processed] = answer.body
        return Introspected(node, status.state, started, finished, status.error, bodies)

    def close(self) -> None:
        self._http.close()

    def _get(self, path: str, *, missing: int = 200) -> HttpAnswer:
        try:
            answer = self._send(path)
            if answer.status == 401 and self._login is not None and self._login.renew():
                answer = self._send(path)
        except (TransientHttpError, IronicUnavailableError, IronicRefusedError) as exc:
            raise ForwardError(str(exc)) from exc
        if answer.status not in (200, missing):
            raise ForwardError(f"HTTP {answer.status}")
        return answer

    def _send(self, path: str) -> HttpAnswer:
        login = {} if self._login is None else self._login.headers()
        return self._http.send("GET", self._root + path, {**_VERSION, **login})


def _seconds(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
