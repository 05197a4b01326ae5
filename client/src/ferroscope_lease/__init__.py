"""Leases of Ferroscope for any Python program; standard library only.

    with Leases("https://ferroscope.example").hold("backup/nightly", duration=6) as lease:
        while work and lease.is_valid():
            write(work.pop(), epoch=lease.epoch)         # the target refuses smaller epochs, or:
            call_ferroscope(headers=lease.if_lease)      # Ferroscope refuses a former leader with 412

``hold`` waits until the lease is free, renews it in a thread, and releases it at the end of the block. A lease is
valid until four fifths of its duration after the last renewal was sent, by CLOCK_BOOTTIME, whatever happens elsewhere.
Nothing stops your code: check ``is_valid`` before each step, and pass on the epoch or ``if_lease`` for what a pause of
the process may delay.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

MARGIN_FRACTION: Final = 0.2  # the fraction of the duration in which nothing may happen any more
_POLL_SECONDS: Final = 0.5  # seconds between two attempts while somebody else leads
_FINAL: Final = frozenset({400, 401, 403, 404, 405, 421})


class LeaseError(Exception):
    """The service refuses this request for good: a wrong name, token, or right."""


class LeaseLostError(Exception):
    """The lease has another holder, or could not be renewed in time."""


def now() -> float:
    """Return seconds of a clock that nobody sets, and that goes on while the host is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """A lease that this process holds. ``lost`` says why it is over, "" while it is not. Thread-safe."""

    def __init__(self, leases: Leases, document: Mapping[str, Any], asked_at: float) -> None:
        self.name: Final[str] = document["name"]
        self.epoch: Final[int] = document["epoch"]
        self.token: Final[str] = document["token"]
        self.duration: Final[float] = document["duration"]
        self.lost = ""
        self.trusted_until = asked_at + self.duration * (1 - MARGIN_FRACTION)
        self._leases = leases
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {self.name}", daemon=True)

    @property
    def if_lease(self) -> dict[str, str]:
        """The header that makes a call to Ferroscope depend on this lease."""
        return {"If-Lease": f"{self.name}/{self.epoch}/{self.token}"}

    def is_valid(self) -> bool:
        """Whether the holder may still act."""
        return not self.lost and now() < self.trusted_until

    def check(self) -> None:
        """Raise ``LeaseLostError`` unless the holder may still act."""
        if not self.is_valid():
            raise LeaseLostError(f"{self.name}: {self.lost or 'it could not be renewed in time'}")

    def renew(self) -> bool:
        """Renew it now; False if that failed, which is no loss before ``trusted_until``."""
        asked_at = now()
        status, _ = self._leases.call("PUT", self.name, {"epoch": self.epoch, "token": self.token})
        if status == 200:
            self.trusted_until = max(self.trusted_until, asked_at + self.duration * (1 - MARGIN_FRACTION))
        elif status in (404, 409):
            self.lost = "it has another holder"
        return status == 200

    def start(self) -> None:
        """Renew it in a thread from now on."""
        self._thread.start()

    def release(self) -> None:
        """Stop renewing it, and let the next holder have it at once."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if not self.lost:
            self.lost = "it was released"
            self._leases.call("DELETE", f"{self.name}", None, {"epoch": self.epoch, "token": self.token})

    def _keep(self) -> None:
        while not self.lost and not self._stop.wait(self.duration / 4):
            self.renew()


class Leases:
    """The lease API at ``url``. ``headers`` returns those with the caller's credentials, asked for each call.

    ``context`` verifies the server's certificate; None: by the certificate authorities of the system.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Callable[[], Mapping[str, str]] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        if urlsplit(self._url).scheme not in ("http", "https"):
            raise LeaseError(f"invalid URL {url!r}: expected http:// or https://")
        self._headers = headers or dict
        https = urllib.request.HTTPSHandler(context=context or ssl.create_default_context())
        self._opener = urllib.request.build_opener(_NoRedirects, https)
        self.timeout = 5.0

    def acquire(self, name: str, duration: float, *, holder: str = "", data: str = "") -> tuple[Lease | None, str]:
        """Try to acquire the lease once; return it, or None and who holds it; ``LeaseError``."""
        self.timeout = max(0.5, duration / 4)
        asked_at = now()
        body = {"holder": holder or f"{socket.gethostname()}:{os.getpid()}", "duration": duration, "data": data}
        status, answer = self.call("POST", name, body)
        if status == 201:
            return Lease(self, answer, asked_at), ""
        if status in _FINAL:
            raise LeaseError(f"{name}: {_fault(answer) or f'HTTP {status}'}")
        if status == 409:
            holding = (answer.get("lease") or {}).get("holder")
            return None, f"held by {holding}" if holding else "just released"
        return None, f"no response: {answer.get('error') or f'HTTP {status}'}"

    def wait(
        self,
        name: str,
        duration: float,
        *,
        holder: str = "",
        stop: threading.Event | None = None,
        waiting: Callable[[str], object] = lambda _why: None,
    ) -> Lease | None:
        """Try until the lease is acquired; None if ``stop`` was set. ``waiting`` learns why, whenever that changes."""
        stop, logged = stop or threading.Event(), ""
        while not stop.is_set():
            lease, why = self.acquire(name, duration, holder=holder)
            if lease is not None:
                return lease
            if why != logged:
                waiting(why)
                logged = why
            stop.wait(_POLL_SECONDS)
        return None

    @contextlib.contextmanager
    def hold(self, name: str, *, duration: float = 6.0, holder: str = "") -> Iterator[Lease]:
        """Wait for the lease, and hold it in this block; see the module."""
        lease = self.wait(name, duration, holder=holder)
        assert lease is not None  # noqa: S101  # nobody stops the wait
        lease.start()
        try:
            yield lease
        finally:
            lease.release()

    def call(self, method: str, name: str, body: Any, query: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and document of an answer; status 0 if there was none. Never raises."""
        target = f"{self._url}/v1/leases/{quote(name)}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        try:
            headers = {"Content-Type": "application/json", **self._headers()}
            request = urllib.request.Request(target, data, headers, method=method)  # noqa: S310  # http, see above
            with self._opener.open(request, timeout=self.timeout) as answer:
                return answer.status, _decode(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decode(error.read())
        except Exception as error:  # noqa: BLE001  # of the network, of TLS, of HTTP: all mean that nothing is known
            return 0, {"error": f"{type(error).__name__}: {error}"[:200]}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: credentials are for this service only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _decode(text: bytes) -> Any:
    try:
        document = json.loads(text)
    except ValueError:
        document = {}
    return document if isinstance(document, dict) else {}


def _fault(answer: Mapping[str, Any]) -> str:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return str(json.loads(answer["error_message"]).get("faultstring", ""))
    return ""
