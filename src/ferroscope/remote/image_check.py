"""Checks the ISO image that a BMC is about to read: whether it is readable in parts, and bootable.

The BMC may see something else: it may be in another network, log in with the URL's credentials, and trust other
certificates. So an unreachable image is a warning. So is a refusal of the server, which may be busy, or serve the BMCs'
network only. Only a file that certainly is not an image is an error. Each URL is checked once in some minutes.
Source of the signatures: ECMA-119, and the El Torito specification, 1.0.
"""

from __future__ import annotations

import ssl
import threading
from typing import Final
from urllib.parse import urlsplit

import urllib3

from ferroscope.contracts.remote import Flaw
from ferroscope.contracts.store import Clock
from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.bounded_http import limit_connections
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.resolver import ForbiddenAddressError
from ferroscope_client.core.host_spelling import refusal_of_url
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.tls_errors import is_plain
from ferroscope_client.core.values import is_loopback, without_secrets

_LOOK_SECONDS: Final = 3.0
_GOOD_FOR_SECONDS: Final = 300.0
_BAD_FOR_SECONDS: Final = 30.0
_MAX_REMEMBERED_URLS: Final = 1000
# Not found, gone, and shorter than any image.
_NO_IMAGE: Final = frozenset({404, 410, 416})
# The primary volume descriptor and the boot record after it, sectors 16 and 17.
_FIRST_BYTE: Final = 16 * 2048
_LENGTH_BYTES: Final = 2 * 2048
_VOLUME: Final = b"\x01CD001"
_BOOT_RECORD: Final = b"\x00CD001\x01EL TORITO SPECIFICATION"


class ImageCheck:
    """``contracts.remote.Images``, over HTTP; thread-safe.

    Only URLs in ``allowed`` networks are checked: a caller who may set a node's image must not learn what this host
    can reach.
    """

    def __init__(self, clock: Clock, *, allowed: Networks = ANYWHERE, seconds: float = _LOOK_SECONDS) -> None:
        self._clock = clock
        self._allowed = allowed
        self._seconds = seconds
        self._results: dict[str, tuple[float, Flaw | None]] = {}
        self._lock = threading.Lock()

    def flaw(self, url: str) -> Flaw | None:
        now = self._clock.monotonic()
        with self._lock:
            until, flaw = self._results.get(url, (0.0, None))
            if now < until:
                return flaw
        flaw = self._look(url)
        with self._lock:
            if len(self._results) >= _MAX_REMEMBERED_URLS:
                self._results.clear()
            self._results[url] = (self._clock.monotonic() + (_BAD_FOR_SECONDS if flaw else _GOOD_FOR_SECONDS), flaw)
        return flaw

    def _look(self, url: str) -> Flaw | None:
        if why := refusal_of_url(url):
            return Flaw(Reason.ISO_INVALID, f"{without_secrets(url)}: {why}", certain=True)
        if not url.startswith(("http://", "https://")):
            return None  # nfs:// and cifs://, which some BMCs read
        public_url = without_secrets(url)
        manager = urllib3.PoolManager(retries=False)
        limit_connections(manager, self._allowed)
        ends = f"{_FIRST_BYTE}-{_FIRST_BYTE + _LENGTH_BYTES - 1}"
        with Deadline(self._seconds):
            try:
                answer = manager.request(
                    "GET", url, headers={"Range": f"bytes={ends}", "Accept-Encoding": "identity"},
                    redirect=False, preload_content=False, timeout=self._seconds,
                )  # fmt: skip
                data = (
                    _read(answer, _FIRST_BYTE + _LENGTH_BYTES)[_FIRST_BYTE:]
                    if answer.status == 200
                    else _read(answer, _LENGTH_BYTES)
                )
                answer.close()
            except ForbiddenAddressError:
                return _loopback_flaw(public_url)
            except (urllib3.exceptions.HTTPError, OSError, ValueError, DeadlineError) as exc:
                return _unreachable_flaw(public_url, exc)
            finally:
                manager.clear()
        if answer.status in (301, 302, 303, 307, 308):
            return Flaw(Reason.ISO_INVALID, f"{public_url} is a redirect, which many BMCs do not follow", certain=False)
        if answer.status not in (200, 206):
            certain = answer.status in _NO_IMAGE
            return Flaw(Reason.ISO_INVALID, f"{public_url} cannot be read: HTTP {answer.status}", certain=certain)
        if not data.startswith(_VOLUME):
            return Flaw(Reason.ISO_INVALID, f"{public_url} is not an ISO 9660 image", certain=True)
        if not data[2048:].startswith(_BOOT_RECORD):
            return Flaw(
                Reason.ISO_INVALID, f"{public_url} is an ISO image that does not boot (no El Torito)", certain=True
            )
        if answer.status == 200:
            message = f"the server of {public_url} ignores Range, so a BMC cannot read parts of the image"
            return Flaw(Reason.ISO_INVALID, message, certain=False)
        return None


def _read(answer: urllib3.BaseHTTPResponse, max_bytes: int) -> bytes:
    data = b""
    while len(data) < max_bytes and (more := answer.read(max_bytes - len(data))):
        data += more
    return data


def _loopback_flaw(public_url: str) -> Flaw | None:
    """Return the problem of an address itself, which does not reveal what this host can reach."""
    if not is_loopback(urlsplit(public_url).hostname or ""):
        return None
    message = f"{public_url} is an address that every host has for itself: a BMC would look for the image on itself"
    return Flaw(Reason.ISO_UNREACHABLE, message, certain=False)


def _unreachable_flaw(public_url: str, exc: Exception) -> Flaw:
    causes = [exc, getattr(exc, "reason", None), exc.__cause__, exc.__context__]
    is_untrusted = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)
    tls_error = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if is_untrusted:
        message = f"the certificate of {public_url} is not trusted on this host, and perhaps not by the BMC"
        return Flaw(Reason.ISO_CERTIFICATE, message, certain=False)
    if tls_error is not None:
        why = "it is http there, not https" if is_plain(tls_error) else f"TLS failed ({tls_error.reason})"
    else:
        messages = (cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror)
        why = next(messages, type(exc).__name__)
    return Flaw(Reason.ISO_UNREACHABLE, f"{public_url} cannot be reached from this host: {why}", certain=False)
