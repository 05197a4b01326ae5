"""Delivers events to a webhook, as CloudEvents 1.0 in the structured mode of their HTTP binding.

Each request is signed as the Standard Webhooks specification says: ``webhook-signature`` is ``v1,`` and the base64 of
the HMAC-SHA256 of ``ID.TIMESTAMP.BODY``. A secret that begins with ``whsec_`` is base64; any other is used unchanged.
It is read for each event, so it can be changed at any time. The webhook is not trusted: a request is bounded in time
and size, and redirects are refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from ferroscope.config.messaging_options import WebhookTarget
from ferroscope.contracts.plugins import SecretSourceError
from ferroscope.contracts.remote import SendError
from ferroscope.core.notification import OutboxEvent, iso
from ferroscope.remote.addresses import ANYWHERE, ForbiddenAddressError, Networks
from ferroscope.remote.bounded_http import limit_connections
from ferroscope.remote.calls import Deadline, DeadlineError

TYPE_PREFIX: Final = "ferroscope."
_CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_MAX_RESPONSE_BYTES: Final = 64 * 1024
_MAX_SECRET_BYTES: Final = 4096
# The webhook rejects the event itself, so sending it again is useless.
_REFUSED: Final = frozenset({400, 405, 410, 413, 414, 415, 422})
_BASE64_SECRET: Final = "whsec_"  # noqa: S105  # a prefix, not a secret


def cloud_event(event: OutboxEvent, source: str) -> dict[str, Any]:
    """Return the CloudEvent, whose ``subject`` is the node's UUID."""
    fields = {
        "specversion": "1.0",
        "id": event.event,
        "source": source,
        "type": f"{TYPE_PREFIX}{event.type}",
        "time": iso(event.at),
        "datacontenttype": "application/json",
        "data": event.data,
    }
    return fields | {"subject": event.node} if event.node else fields


def sign(secret: str, ident: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``; ``ValueError`` if the secret is not valid base64."""
    key = secret.encode()
    if secret.startswith(_BASE64_SECRET):
        key = base64.b64decode(secret.removeprefix(_BASE64_SECRET), validate=True)
    digest = hmac.new(key, f"{ident}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class Webhook:
    """A ``contracts.remote.Sender``.

    ``resolve`` returns the secret of a reference. ``OSError`` or ``SecretSourceError`` if the file of the secret or the
    CA file cannot be used.
    """

    def __init__(
        self,
        target: WebhookTarget,
        *,
        source: str,
        networks: Networks = ANYWHERE,
        resolve: Callable[[str], str] | None = None,
    ) -> None:
        self.connections = target.connections
        self._target = target
        self._source = source
        self._resolve = resolve
        if target.secret.startswith("/"):
            self._secret()  # a mistake is reported at the start
        if target.ca_file:
            Path(target.ca_file).open("rb").close()
        self._pool = urllib3.PoolManager(
            retries=False, maxsize=target.connections, cert_reqs="CERT_REQUIRED", ca_certs=target.ca_file or None
        )
        limit_connections(self._pool, networks)

    def send(self, event: OutboxEvent) -> None:
        body = msgspec.json.encode(cloud_event(event, self._source))
        status, retry_after = self._post(body, self._headers(event.event, body))
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise SendError(f"HTTP {status}: redirects are not followed")
        raise SendError(f"HTTP {status}", refused=status in _REFUSED, retry_after=retry_after)

    def close(self) -> None:
        self._pool.clear()

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, float]:
        """Return the status, and the seconds to wait that the webhook asks for."""
        with Deadline(self._target.timeout) as deadline:
            try:
                answer = self._pool.request(
                    "POST",
                    self._target.url,
                    body=body,
                    headers=headers,
                    timeout=self._target.timeout,
                    redirect=False,
                    preload_content=False,
                )
                received = answer.read(_MAX_RESPONSE_BYTES + 1, decode_content=False)
                deadline.seconds_left()  # headers cut off by the deadline look like a response without a body
                if not answer.headers:  # so do those cut off by the end of the connection
                    raise urllib3.exceptions.ProtocolError("no headers")
                if len(received) <= _MAX_RESPONSE_BYTES:
                    answer.read()  # raises if the body is shorter than announced
                    answer.release_conn()
                else:
                    answer.close()
                return answer.status, _seconds(answer.headers.get("Retry-After"))
            except ForbiddenAddressError:
                raise SendError("its address is not in [notifications] networks", unreachable=True) from None
            except (urllib3.exceptions.HTTPError, OSError, DeadlineError, ValueError) as exc:
                if deadline.has_expired:
                    message = f"no response within {self._target.timeout:g} s"
                else:
                    message = f"no complete response: {type(getattr(exc, 'reason', None) or exc).__name__}"
                raise SendError(message, unreachable=True) from exc

    def _headers(self, ident: str, body: bytes) -> dict[str, str]:
        timestamp = int(time.time())
        headers = {"Content-Type": _CONTENT_TYPE, "User-Agent": "ferroscope", "webhook-id": ident}
        headers["webhook-timestamp"] = str(timestamp)
        if self._target.secret:
            try:
                headers["webhook-signature"] = sign(self._secret(), ident, timestamp, body)
            except (OSError, SecretSourceError) as exc:
                reason = exc.strerror if isinstance(exc, OSError) else exc
                raise SendError(f"cannot read its secret: {reason}", unreachable=True) from None
        return headers

    def _secret(self) -> str:
        name, secret = self._target.secret, ""
        if name.startswith("/"):
            with Path(name).open("rb") as stream:
                secret = stream.read(_MAX_SECRET_BYTES).decode(errors="replace").strip()
        elif self._resolve is not None:
            secret = self._resolve(name).strip()
        if not secret:
            raise SecretSourceError("it is empty")
        try:
            sign(secret, "", 0, b"")
        except (binascii.Error, ValueError):
            raise SecretSourceError("what follows whsec_ is not valid base64") from None
        return secret


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 7 else 0.0
