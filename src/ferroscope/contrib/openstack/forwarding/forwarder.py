"""Forwards callbacks to an ironic-inspector that runs beside this service (``[inspector] forward_unknown_to``).

Only the body goes there: no query, no header of the caller. The URL is the configured one, redirects are refused, and a
call is limited in time and in the size of its response. ironic-inspector answers after it has processed the data, and
data that arrives again meanwhile makes it fail: so of identical callbacks, one is forwarded at a time.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Final

import msgspec
import urllib3

from ferroscope.config.inspection_options import MAX_FORWARDED_CALLBACKS, InspectorSettings
from ferroscope.contracts.remote import ForwardBusyError, ForwardError
from ferroscope.remote.bounded_http import limit_connections
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope_client.core import json_safety

# A callback with this header was forwarded, and is never forwarded again.
HEADER: Final = "Ferroscope-Forwarded"
_MAX_RESPONSE_BYTES: Final = 64 * 1024


class _ForwardAnswer(msgspec.Struct):
    uuid: str


class InspectorForwarder:
    """``contracts.remote.Forwarder``; ``OSError`` if the CA file cannot be read."""

    def __init__(self, settings: InspectorSettings) -> None:
        self._url, self._timeout = settings.forward_unknown_to, settings.forward_timeout
        if settings.forward_ca_file:
            Path(settings.forward_ca_file).open("rb").close()
        self._pool = urllib3.PoolManager(
            retries=False,
            maxsize=MAX_FORWARDED_CALLBACKS,
            cert_reqs="CERT_REQUIRED",
            ca_certs=settings.forward_ca_file or None,
        )
        limit_connections(self._pool)
        self._lock = threading.Lock()
        self._active: set[bytes] = set()

    def forward(self, body: bytes) -> str | None:
        digest = hashlib.sha256(body).digest()
        with self._lock:
            if digest in self._active:
                raise ForwardBusyError("the same callback is being forwarded")
            if len(self._active) >= MAX_FORWARDED_CALLBACKS:
                raise ForwardBusyError(f"{MAX_FORWARDED_CALLBACKS} callbacks are being forwarded")
            self._active.add(digest)
        try:
            return self._post(body)
        finally:
            with self._lock:
                self._active.discard(digest)

    def _post(self, body: bytes) -> str | None:
        with Deadline(self._timeout) as deadline:
            try:
                answer = self._pool.request(
                    "POST",
                    self._url,
                    body=body,
                    headers={"Content-Type": "application/json", "User-Agent": "ferroscope", HEADER: "1"},
                    timeout=self._timeout,
                    redirect=False,
                    preload_content=False,
                )
                received = answer.read(_MAX_RESPONSE_BYTES + 1, decode_content=False)
                deadline.seconds_left()  # headers cut off by the deadline look like a response without a body
                if len(received) > _MAX_RESPONSE_BYTES:
                    answer.close()
                    raise ForwardError(f"its response has more than {_MAX_RESPONSE_BYTES} bytes")
                answer.read()  # raises if the body is shorter than announced
                answer.release_conn()
            except (urllib3.exceptions.HTTPError, OSError, DeadlineError, ValueError) as exc:
                if deadline.has_expired:
                    why = f"no response within {self._timeout:g} s"
                else:
                    why = f"no complete response: {type(getattr(exc, 'reason', None) or exc).__name__}"
                raise ForwardError(why) from exc
        if 400 <= answer.status < 500 and answer.status not in (408, 429):
            return None
        if answer.status not in (200, 202):
            raise ForwardError(f"HTTP {answer.status}")
        try:
            return json_safety.decode(received, _ForwardAnswer).uuid
        except json_safety.JsonError:
            raise ForwardError("it does not respond like ironic-inspector") from None
