"""The certificate of the listeners: loads it, and follows its files, so that a renewal needs no restart.

A new pair is used by connections that begin after it was read; existing ones continue. If a new pair is unusable, that
is logged, and the previous one stays in use. A process does not start with an unusable or expired one.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from ferroscope.api.http.rate_limit import QuietLog
from ferroscope.config.followed import Followed
from ferroscope.config.options import ApiSettings
from ferroscope.runtime.system import SetupError, SystemClock
from ferroscope.telemetry.finding import Finding

EXPIRES_SOON: Final = 14 * 86400.0
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENTS: Final = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_ADVICE: Final = "both must be in PEM format, the certificate followed by its intermediate certificates"

_log = structlog.get_logger(__name__)


class _Loaded(NamedTuple):
    context: ssl.SSLContext
    expires: datetime


class Certificates:
    """The current certificate; ``SetupError`` if it is unusable at the start. Safe for several threads."""

    def __init__(self, settings: ApiSettings) -> None:
        names = (settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)
        self._file = Path(settings.tls_certificate_file)
        self._clock = SystemClock()
        self._quiet = QuietLog(burst=3, period=60.0)
        files = [Path(name) for name in names if name]
        self._loaded = Followed("certificates", files, lambda: _load(settings, datetime.now(UTC)))

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
        """Log it, but not all of them: anyone can cause it."""
        if (left_out := self._quiet.admit(self._clock.monotonic())) is not None:
            _log.info("TLS handshake failed", source=source, reason=reason, left_out=left_out)


def certificates(settings: ApiSettings) -> Certificates | None:
    """Return the listeners' certificate; None if TLS is not configured. ``SetupError``."""
    return Certificates(settings) if settings.tls_certificate_file else None


def expiry(expires: datetime, now: datetime, file: Path) -> Finding | None:
    """Return a finding if a certificate has expired or will do so within ``EXPIRES_SOON`` seconds."""
    left = (expires - now).total_seconds()
    advice = f"replace {file} and its key; the service reads them again without a restart"
    if left <= 0:
        return Finding(
            "certificate-expired", "wrong", f"the certificate {file} expired on {expires:%Y-%m-%d %H:%M} UTC", advice
        )
    if left > EXPIRES_SOON:
        return None
    summary = f"the certificate {file} expires in {left / 86400:.0f} days, on {expires:%Y-%m-%d %H:%M} UTC"
    return Finding("certificate-expires", "wrong", summary, advice)


def _load(settings: ApiSettings, now: datetime) -> _Loaded:
    """Return a context for new connections; ``SetupError`` names the option of an unusable file."""
    expires = _expires(settings.tls_certificate_file, now)
    _read("tls_key_file", settings.tls_key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_minimum_version]
    # A client could make us renegotiate again and again, which costs us more than the client.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
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
    raise SetupError("[api] tls_key_file is encrypted", "decrypt it: nobody can enter a password when a service starts")


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


def _expires(path: str, now: datetime) -> datetime:
    """Return when the certificate expires; ``SetupError`` if it has expired, or cannot be read."""
    from cryptography import x509  # only services with TLS need the memory

    try:
        first = x509.load_pem_x509_certificates(_read("tls_certificate_file", path))[0]
    except ValueError as exc:
        raise SetupError(f"[api] tls_certificate_file {path} contains no certificate in PEM format", _ADVICE) from exc
    expires = first.not_valid_after_utc
    if expires <= now:
        raise SetupError(f"[api] tls_certificate_file {path} expired on {expires:%Y-%m-%d %H:%M} UTC", "renew it")
    return expires


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise SetupError(
            f"cannot read [api] {option} {path}: {exc.strerror or exc}", "correct the option, or the file's permissions"
        ) from exc
