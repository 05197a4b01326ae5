"""Microversion negotiation: the version that a request asks for, and the version headers of every response.

Versions are (major, minor) pairs. Source: version negotiation in the Bare Metal API reference and the Introspection
API reference, and how keystoneauth and the clients do it.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from ferroscope.api.errors import ApiError, BadRequestError, NotAcceptableError

Version = tuple[int, int]

_NUMBER: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\Z", re.ASCII)
# The key of the header that all services of OpenStack know, in a WSGI environment.
STANDARD: Final = "HTTP_OPENSTACK_API_VERSION"


class ApiDialect(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """How one API negotiates: its header, range, default, and the error for a malformed version."""

    service: str
    header: str
    minimum: Version
    maximum: Version
    default: Version
    malformed: type[ApiError]

    @cached_property
    def environ_key(self) -> str:
        return "HTTP_" + self.header.upper().replace("-", "_")

    @property
    def range(self) -> tuple[str, str]:
        return text(self.minimum), text(self.maximum)


BARE_METAL: Final = ApiDialect(
    service="baremetal",
    header="X-OpenStack-Ironic-API-Version",
    minimum=(1, 1),
    maximum=(1, 115),
    default=(1, 1),
    malformed=NotAcceptableError,
)
INTROSPECTION: Final = ApiDialect(
    service="baremetal-introspection",
    header="X-OpenStack-Ironic-Inspector-API-Version",
    minimum=(1, 0),
    maximum=(1, 18),
    default=(1, 18),
    malformed=BadRequestError,
)


def text(version: Version) -> str:
    """Return the version in the form used in headers."""
    return f"{version[0]}.{version[1]}"


@lru_cache(maxsize=32)
def headers(dialect: ApiDialect, version: Version | None) -> dict[str, str]:
    """Return the version headers of a response; ``version`` is None if negotiation failed."""
    minimum, maximum = dialect.range
    stem = dialect.header.removesuffix("-Version")
    named = {f"{stem}-Minimum-Version": minimum, f"{stem}-Maximum-Version": maximum}
    if version is not None:
        named[dialect.header] = text(version)
    return named


@lru_cache(maxsize=256)
def requested_version(standard: str | None, own: str | None, dialect: ApiDialect) -> Version:
    """Return the requested version, by the values of the header of all services and of the dialect's own.

    Raises the dialect's error if it is malformed or not supported.
    """
    wanted = _from_standard(standard, dialect.service) or own
    if not wanted:
        return dialect.default
    if wanted.strip().lower() == "latest":
        return dialect.maximum
    match = _NUMBER.match(wanted.strip())
    if match is None:
        raise dialect.malformed(
            f"Invalid {dialect.header} header {wanted[:40]!r}: expected a version such as {text(dialect.maximum)}, "
            "or latest."
        )
    version = int(match[1]), int(match[2])
    if not dialect.minimum <= version <= dialect.maximum:
        minimum, maximum = dialect.range
        raise NotAcceptableError(
            f"Version {text(version)} is not supported by this service. "
            f"The supported version range is: [{minimum}, {maximum}]."
        )
    return version


def _from_standard(value: str | None, service: str) -> str | None:
    for part in (value or "").split(","):
        words = part.split()
        if len(words) == 2 and words[0].lower() == service:
            return words[1]
    return None
