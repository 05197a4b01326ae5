"""Authentication by a client certificate: the roles of its names, from a file.

    # CN: the common name of the subject. DNS, mail, URI: a name of subjectAltName.
    CN:deploy.example.org:admin
    URI:spiffe://example.org/monitoring:reader

The kind decides too: an authority may let people choose their mail address, but not their common name. OpenSSL has
verified the certificate before. A client whose names are not listed has no identity by its certificate, but may have
other credentials. If several of its names are listed, the first one in the certificate counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ferroscope.api.auth.identity import ROLES, Identity, local
from ferroscope.config.followed import ConfigFileError, Followed, read_text
from ferroscope.contracts.store import Clock
from ferroscope.http_server.agreed import KINDS_OF_NAMES, NAMES


def parse(text: str) -> Mapping[str, Identity]:
    """Return the identity of each ``KIND:NAME``; ``ConfigFileError``."""
    identities: dict[str, Identity] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        kind, name, fields = _parts(line)
        roles = tuple(role.strip() for role in fields.split(",") if role.strip())
        if kind not in KINDS_OF_NAMES:
            raise ConfigFileError(
                f"line {number}: {line[:40]!r} does not name a field of the certificate: begin it with CN: "
                "for the common name of the subject, or with DNS:, mail: or URI: for a name of subjectAltName"
            )
        if not name or not roles:
            raise ConfigFileError(f"line {number}: expected KIND:NAME:ROLE[,ROLE...]")
        unknown = [role for role in roles if role not in ROLES]
        if unknown:
            raise ConfigFileError(f"line {number}: unknown role {unknown[0][:40]!r}; known: {', '.join(ROLES)}")
        if f"{kind}:{name}" in identities:
            raise ConfigFileError(f"line {number}: {kind}:{name[:40]} is listed twice")
        identities[f"{kind}:{name}"] = local(name, "certificate", roles)
    if not identities:
        raise ConfigFileError("no name is listed; add the lines KIND:NAME:ROLE[,ROLE...]")
    return identities


def _parts(line: str) -> tuple[str, str, str]:
    """Return kind, name and roles; the name may contain colons."""
    kind, _, rest = line.partition(":")
    name, _, roles = rest.rpartition(":")
    return kind.strip(), name.strip(), roles


class CertificateAuth:
    """One instance serves all threads."""

    def __init__(self, file: str, clock: Clock) -> None:
        """Read the file: ``ConfigFileError``, ``OSError``."""
        path = Path(file)
        self._identities = Followed(
            "roles of certificates", [path], lambda: parse(read_text(path)), clock=clock.monotonic
        )

    def claimed_name(self, headers: Mapping[str, str]) -> str | None:
        """Return the first name in the certificate; None without one."""
        return headers.get(NAMES, "").partition("\n")[0].partition(":")[2] or None

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who has connected with this certificate; None without one, or if none of its names is listed."""
        names = headers.get(NAMES)
        if not names:
            return None
        identities = self._identities.value
        return next((identities[name] for name in names.split("\n") if name in identities), None)
