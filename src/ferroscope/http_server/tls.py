"""TLS of the listeners: the certificate, which is read again after a renewal; and one TLS connection.

New connections use a new pair of certificate and key; existing ones continue. An unusable new pair is logged, and the
previous one stays in use. A process does not start with an unusable or expired pair.

Python's ssl module does the cryptography, on buffers in memory. asyncio's own TLS reports a connection only after its
handshake, so slow handshakes would count against no limit, and it allocates 256 KiB for each connection. Here the HTTP
connection exists from the first moment: its limits and its deadline for a header include the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import structlog

from ferroscope.config.errors import SetupError
from ferroscope.config.followed import Followed
from ferroscope.config.options import ApiSettings
from ferroscope.http_server.agreed import NAMES
from ferroscope.http_server.connection import Connection
from ferroscope.telemetry.log import QuietLog
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

EXPIRES_SOON_SECONDS: Final = 14 * 86400.0
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENTS: Final = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_ADVICE: Final = "both must be in PEM format, the certificate followed by its intermediate certificates"
_CIPHERS_ADVICE: Final = "see what OpenSSL makes of it with: openssl ciphers -tls1_2 -s -v CIPHERS"

_log = structlog.get_logger(__name__)


class _Loaded(NamedTuple):
    context: ssl.SSLContext
    expires: datetime


class Certificates:
    """The current certificate; ``SetupError`` if it is unusable at the start. Safe for several threads."""

    def __init__(self, settings: ApiSettings) -> None:
        names = (settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)
        self._file = Path(settings.tls_certificate_file)
        self._quiet = QuietLog(burst=3, period=60.0)
        files = [Path(name) for name in names if name]
        self._serves = False
        self._loaded = Followed("certificates", files, lambda: _load(settings, datetime.now(UTC), renews=self._serves))
        self._serves = True

    @property
    def context(self) -> ssl.SSLContext:
        return self._loaded.value.context

    @property
    def expires(self) -> datetime:
        return self._loaded.value.expires

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        _ = self._loaded.value

    def problem(self) -> Finding | None:
        """Return a finding if the certificate expires soon."""
        return expiry(self.expires, datetime.now(UTC), self._file)

    def handshake_failed(self, source: str, reason: str) -> None:
        """Log it, with a limit: any client can cause it."""
        if (left_out := self._quiet.admit(time.monotonic())) is not None:
            _log.info("TLS handshake failed", source=source, reason=reason, left_out=left_out)


def certificates(settings: ApiSettings) -> Certificates | None:
    """Return the listeners' certificate; None if TLS is not configured. ``SetupError``."""
    return Certificates(settings) if settings.tls_certificate_file else None


def expiry(expires: datetime, now: datetime, file: Path) -> Finding | None:
    """Return a finding if a certificate has expired or will do so within ``EXPIRES_SOON_SECONDS``."""
    left = (expires - now).total_seconds()
    advice = f"replace {file} and its key; the service reads them again without a restart"
    if left <= 0:
        return Finding(
            "certificate-expired", "wrong", f"the certificate {file} expired on {expires:%Y-%m-%d %H:%M} UTC", advice
        )
    if left > EXPIRES_SOON_SECONDS:
        return None
    summary = f"the certificate {file} expires in {many(round(left / 86400), 'day')}, on {expires:%Y-%m-%d %H:%M} UTC"
    return Finding("certificate-expires", "wrong", summary, advice)


def _load(settings: ApiSettings, now: datetime, *, renews: bool) -> _Loaded:
    """Return a context for new connections; ``SetupError`` names the option of an unusable file.

    ``renews``: a certificate is in use, and stays in use if this one is not valid yet. At the start, this host's clock
    may be the one that is wrong.
    """
    expires, begins = _valid(settings.tls_certificate_file, now)
    if renews and begins > now:
        summary = f"[api] tls_certificate_file {settings.tls_certificate_file}"
        raise SetupError(f"{summary} is not valid before {begins:%Y-%m-%d %H:%M} UTC", "it is tried again later")
    _read("tls_key_file", settings.tls_key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_minimum_version]
    # A client could make us renegotiate again and again, which costs us more than the client.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # The system's defaults include CBC and static RSA, with which a stolen key decrypts recorded connections.
        context.set_ciphers(settings.tls_ciphers)
    except ssl.SSLError as exc:
        raise SetupError(
            f"[api] tls_ciphers {settings.tls_ciphers!r} selects no cipher suite", _CIPHERS_ADVICE
        ) from exc
    try:
        context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file, password=_no_password)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            summary = f"the key in [api] tls_key_file {settings.tls_key_file} does not belong to the certificate"
            raise SetupError(summary, f"the certificate is {settings.tls_certificate_file}") from exc
        reason = (exc.reason or "not a private key").lower().replace("_", " ")
        raise SetupError(f"cannot use [api] tls_key_file {settings.tls_key_file}: {reason}", _ADVICE) from exc
    if settings.tls_client_certificates != "off":
        _verify_clients(context, settings)
    return _Loaded(context, expires)


def _no_password() -> str:
    raise SetupError(
        "[api] tls_key_file is encrypted", "decrypt it: a service cannot ask for a password when it starts"
    )


def _verify_clients(context: ssl.SSLContext, settings: ApiSettings) -> None:
    path = settings.tls_client_ca_file
    text = _read("tls_client_ca_file", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as exc:
        raise SetupError(f"[api] tls_client_ca_file {path} contains no CA certificate in PEM format") from exc
    if b"-----BEGIN X509 CRL-----" in text:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.verify_mode = _CLIENTS[settings.tls_client_certificates]


def _valid(path: str, now: datetime) -> tuple[datetime, datetime]:
    """Return when the certificate ends and begins; ``SetupError`` if it has expired, or cannot be read."""
    from cryptography import x509  # only services with TLS need the memory

    try:
        first = x509.load_pem_x509_certificates(_read("tls_certificate_file", path))[0]
    except ValueError as exc:
        raise SetupError(f"[api] tls_certificate_file {path} contains no certificate in PEM format", _ADVICE) from exc
    expires = first.not_valid_after_utc
    if expires <= now:
        raise SetupError(f"[api] tls_certificate_file {path} expired on {expires:%Y-%m-%d %H:%M} UTC", "renew it")
    return expires, first.not_valid_before_utc


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise SetupError(
            f"cannot read [api] {option} {path}: {exc.strerror or exc}", "correct the option, or the file's permissions"
        ) from exc


_HANDSHAKE_TYPE: Final = 0x16
_CHUNK_BYTES: Final = 64 * 1024
_PLAIN_HTTP: Final = "This port serves HTTPS; use https:// in the URL."


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """Everything runs in the event loop's thread."""

    def __init__(self, certificates: Certificates, http: Connection) -> None:
        super().__init__()
        self._certificates = certificates
        self._http = http
        self._socket: asyncio.Transport = None  # type: ignore[assignment]  # from connection_made on
        # None before the first byte, and for a client that does not speak TLS.
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._established = False
        self._discarding = False

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._http.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._http.data_received(data)
            return
        if self._tls is None:
            if data[0] != _HANDSHAKE_TYPE and data[:1].isalpha():
                self._refuse_plain_http()
                return
            self._tls = self._certificates.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        try:
            plain, ended = self._progress(self._tls)
        except ssl.SSLError as exc:
            self._fail(exc)
            return
        self._flush()
        if plain:
            self._http.data_received(plain)
        if ended and not self._socket.is_closing() and not self._http.eof_received():
            self.close()

    def eof_received(self) -> bool:
        if self._established:
            return self._http.eof_received()
        return False

    def _progress(self, tls: ssl.SSLObject) -> tuple[bytes, bool]:
        """Return what the client sent, and whether it will send nothing more."""
        if not self._established:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                return b"", False
            self._established = True
            self._http.identify(client_certificate(tls.getpeercert()))
        parts: list[bytes] = []
        while True:
            try:
                part = tls.read(_CHUNK_BYTES)
            except ssl.SSLWantReadError:
                return b"".join(parts), False
            except ssl.SSLZeroReturnError:
                return b"".join(parts), True
            if not part:  # close_notify from the client; SSLZeroReturnError only if we have sent ours before
                return b"".join(parts), True
            parts.append(part)

    def _fail(self, exc: ssl.SSLError) -> None:
        """Send the alert that says why, and close."""
        self._flush()
        if not self._established:
            self._certificates.handshake_failed(self._http.address, (exc.reason or str(exc)).lower().replace("_", " "))
        self._discarding = True
        self._socket.close()

    def _refuse_plain_http(self) -> None:
        self._discarding = True
        self._http.refuse(400, _PLAIN_HTTP)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    # The transport of the HTTP connection.

    def write(self, data: Any) -> None:
        if self._tls is None:
            self._socket.write(data)
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:  # the connection is broken, or its handshake is not complete
            self._socket.abort()
            return
        self._flush()

    def can_write_eof(self) -> bool:
        return self._socket.can_write_eof()

    def write_eof(self) -> None:
        self._say_goodbye()
        self._discarding = True
        self._socket.write_eof()

    def close(self) -> None:
        self._say_goodbye()
        self._socket.close()

    def _say_goodbye(self) -> None:
        """Send close_notify, which tells the client that nothing was cut off; do not wait for the client's."""
        if not self._established or self._discarding or self._tls is None:
            return
        with suppress(ssl.SSLError):  # usually SSLWantReadError: the client's is not here yet
            self._tls.unwrap()
        self._flush()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)


def client_certificate(certificate: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the environ's fields for the client's verified certificate: its names, see ``NAMES``; {} if none.

    If the subject has several common names, it is unclear which one the authority verified, so none counts.
    """
    if not certificate:
        return {}
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    names = [("CN", name) for name in common if len(common) == 1]
    names += [(_KINDS[kind], name) for kind, name in certificate.get("subjectAltName", ()) if kind in _KINDS]
    listed = dict.fromkeys(f"{kind}:{name}" for kind, name in names if name.isprintable() and name)
    return {NAMES: "\n".join(listed)} if listed else {}


# The kinds of ``agreed.KINDS_OF_NAMES`` by what Python's ``ssl`` calls them.
_KINDS: Final = {"DNS": "DNS", "email": "mail", "URI": "URI"}
