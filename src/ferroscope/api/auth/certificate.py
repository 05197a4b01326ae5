"""Authentication by a client certificate: the roles of its names, from a file.

    # A name is the common name, or a DNS name, mail address or URI of subjectAltName.
    deploy.example.org:admin
    spiffe://example.org/monitoring:reader

OpenSSL has verified the certificate before. A client whose names are not listed has no identity by its certificate, but
may have other credentials. If several of its names are listed, the first one in the certificate counts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from ferroscope.api.auth.identity import ROLES, Identity, local
from ferroscope.contracts.queue import Clock

NAMES: Final = "ferroscope.client_certificate"
"""The key of the environ that has the names of the client's certificate, one in each line. No header has this name."""

_FILE_INTERVAL: Final = 1.0

_log = structlog.get_logger(__name__)


class RolesFileError(Exception):
    """The file cannot be used; the message says what is wrong in which line."""


def parse(text: str) -> Mapping[str, Identity]:
    """Return the identity of each name; ``RolesFileError``."""
    found: dict[str, Identity] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, fields = line.rpartition(":")
        name = name.strip()
        roles = tuple(role.strip() for role in fields.split(",") if role.strip())
        if not name or not roles:
            raise RolesFileError(f"line {number}: expected NAME:ROLE[,ROLE...]")
        unknown = [role for role in roles if role not in ROLES]
        if unknown:
            raise RolesFileError(f"line {number}: unknown role {unknown[0][:40]!r}; known: {', '.join(ROLES)}")
        if name in found:
            raise RolesFileError(f"line {number}: {name[:40]!r} is listed twice")
        found[name] = local(name, "certificate", roles)
    return found


class CertificateAuth:
    """One instance serves all threads. A changed file is read again; a broken one is logged, and changes nothing."""

    def __init__(self, file: str, clock: Clock) -> None:
        """Read the file: ``RolesFileError``, ``OSError``."""
        self._path = Path(file)
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = self._stat()
        self._identities = _read(self._path)
        self._check_at = clock.monotonic() + _FILE_INTERVAL

    def known(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who has connected with this certificate; that costs nothing."""
        return self.identify(headers)

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who has connected with this certificate; None without one, or if none of its names is listed."""
        names = headers.get(NAMES)
        if not names:
            return None
        self._reload_if_changed()
        identities = self._identities
        return next((identities[name] for name in names.split("\n") if name in identities), None)

    def reload(self) -> None:
        """Read the file now."""
        with self._lock:
            self._check_at, self._stamp = 0.0, (0, 0, 0)
        self._reload_if_changed()

    def _reload_if_changed(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now < self._check_at:
                return
            self._check_at = now + _FILE_INTERVAL
        try:
            stamp = self._stat()
            if stamp != self._stamp:
                self._stamp = stamp
                self._identities = _read(self._path)
                _log.info("roles of certificates read again", file=str(self._path), names=len(self._identities))
        except (OSError, RolesFileError) as exc:
            _log.error("cannot use the changed roles file; the previous roles stay", file=str(self._path), why=str(exc))

    def _stat(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> Mapping[str, Identity]:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as exc:
        raise RolesFileError("it is not UTF-8 text") from exc
