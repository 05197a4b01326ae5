"""Which microversion a call asks for, and the headers that every answer carries.

Versions are (major, minor) pairs. Source: the version negotiation of the Bare Metal API reference
and of the Introspection API reference, as keystoneauth and the clients perform it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.api.http.errors import ApiError, BadRequestError, NotAcceptableError

Version = tuple[int, int]

_NUMBER: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\Z", re.ASCII)
_STANDARD: Final = "HTTP_OPENSTACK_API_VERSION"


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one API negotiates: its header, its range, its default, and its word for nonsense."""

    service: str
    header: str
    minimum: Version
    maximum: Version
    default: Version
    malformed: type[ApiError]

    @property
    def environ_key(self) -> str:
        return "HTTP_" + self.header.upper().replace("-", "_")

    @property
    def range(self) -> tuple[str, str]:
        return text(self.minimum), text(self.maximum)


BARE_METAL: Final = Dialect(
    service="baremetal",
    header="X-OpenStack-Ironic-API-Version",
    minimum=(1, 1),
    maximum=(1, 96),
    default=(1, 1),
    malformed=NotAcceptableError,
)
INTROSPECTION: Final = Dialect(
    service="baremetal-introspection",
    header="X-OpenStack-Ironic-Inspector-API-Version",
    minimum=(1, 0),
    maximum=(1, 18),
    default=(1, 18),
    malformed=BadRequestError,
)


def text(version: Version) -> str:
    """Return the version as it is written in headers."""
    return f"{version[0]}.{version[1]}"


def requested(environ: Mapping[str, Any], dialect: Dialect) -> Version:
    """Return the version that the call asks for; raise the dialect's error where it cannot be had."""
    return _parse(environ.get(_STANDARD), environ.get(dialect.environ_key), dialect)


@lru_cache(maxsize=32)
def headers(dialect: Dialect, version: Version | None) -> dict[str, str]:
    """Return the headers of an answer; ``version`` is None where none could be agreed on."""
    minimum, maximum = dialect.range
    stem = dialect.header.removesuffix("-Version")
    named = {f"{stem}-Minimum-Version": minimum, f"{stem}-Maximum-Version": maximum}
    if version is not None:
        named[dialect.header] = text(version)
    return named


@lru_cache(maxsize=256)
def _parse(standard: str | None, own: str | None, dialect: Dialect) -> Version:
    wanted = _from_standard(standard, dialect.service) or own
    if not wanted:
        return dialect.default
    if wanted.strip().lower() == "latest":
        return dialect.maximum
    match = _NUMBER.match(wanted.strip())
    if match is None:
        raise dialect.malformed(
            f"The header {dialect.header} must be like {text(dialect.maximum)}, or latest; it was {wanted[:40]!r}."
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
