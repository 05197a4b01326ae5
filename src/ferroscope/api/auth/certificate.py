"""Authentication by a client certificate: the roles of its names, from a file.

    # A name is the common name, or a DNS name, mail address or URI of subjectAltName.
    deploy.example.org:admin
    spiffe://example.org/monitoring:reader

OpenSSL has verified the certificate before. A client whose names are not listed has no identity by its certificate, but
may have other credentials. If several of its names are listed, the first one in the certificate counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ferroscope.api.auth.identity import ROLES, Identity, local
from ferroscope.config.followed import FileError, Followed, read_text
from ferroscope.contracts.queue import Clock
from ferroscope.http_server.agreed import NAMES


def parse(text: str) -> Mapping[str, Identity]:
    """Return the identity of each name; ``FileError``."""
    found: dict[str, Identity] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, fields = line.rpartition(":")
        name = name.strip()
        roles = tuple(role.strip() for role in fields.split(",") if role.strip())
        if not name or not roles:
            raise FileError(f"line {number}: expected NAME:ROLE[,ROLE...]")
        unknown = [role for role in roles if role not in ROLES]
        if unknown:
            raise FileError(f"line {number}: unknown role {unknown[0][:40]!r}; known: {', '.join(ROLES)}")
        if name in found:
            raise FileError(f"line {number}: {name[:40]!r} is listed twice")
        found[name] = local(name, "certificate", roles)
    if not found:
        raise FileError("no name is listed; add the lines NAME:ROLE[,ROLE...]")
    return found


class CertificateAuth:
    """One instance serves all threads."""

    def __init__(self, file: str, clock: Clock) -> None:
        """Read the file: ``FileError``, ``OSError``."""
        path = Path(file)
        self._identities = Followed(
            "roles of certificates", [path], lambda: parse(read_text(path)), clock=clock.monotonic
        )

    def claimed(self, headers: Mapping[str, str]) -> str | None:
        """Return the first name in the certificate; None without one."""
        return headers.get(NAMES, "").partition("\n")[0] or None

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who has connected with this certificate; None without one, or if none of its names is listed."""
        names = headers.get(NAMES)
        if not names:
            return None
        identities = self._identities.value
        return next((identities[name] for name in names.split("\n") if name in identities), None)
