"""Types, links and times that all representations share.

The types document more in the OpenAPI document than the decoder checks: handlers check the rest, because their error
messages can say what to do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from ferroscope.contracts.bmc import RESULTS, BootDevice
from ferroscope_client.core.states import INSPECTED, PUBLISHED_STATES


def _with_schema(**schema: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema=schema)


def one_of(*values: str) -> msgspec.Meta:
    """Document the allowed values."""
    return _with_schema(enum=list(values))


Uuid = Annotated[str, _with_schema(format="uuid")]
Mac = Annotated[str, _with_schema(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")]
Limit = Annotated[int, _with_schema(minimum=1)]
LimitOrZero = Annotated[int, _with_schema(minimum=0)]
SortDir = Annotated[str, one_of("asc", "desc")]
ProvisionState = Annotated[str, one_of(*PUBLISHED_STATES)]
IntrospectionState = Annotated[str, one_of(*map(str, INSPECTED))]
Verb = Annotated[str, one_of("abort", "inspect", "manage", "provide")]
PowerState = Annotated[str, one_of(*RESULTS)]
Device = Annotated[str, one_of(*map(str, BootDevice))]
DriverType = Annotated[str, one_of("classic", "dynamic")]


# Links to a resource, with and without the API's version.


class ApiLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A link; ``type`` is the media type if it is not this API's own."""

    href: str
    rel: str
    type: str | None = None


def pair(url: str, path: str) -> list[ApiLink]:
    """Return the ``self`` and the ``bookmark`` link of ``path``, relative to ``/v1``."""
    return [ApiLink(href=f"{url}/v1/{path}", rel="self"), ApiLink(href=f"{url}/{path}", rel="bookmark")]


def own(url: str, path: str) -> list[ApiLink]:
    """Return only the ``self`` link."""
    return [ApiLink(href=f"{url}/v1/{path}", rel="self")]


# Times in responses: ISO 8601, UTC. Internally they are seconds since the epoch.


def iso(seconds: float | None) -> str | None:
    """Return the time with a resolution of a second, as the Bare Metal API does."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).isoformat()


def iso_micro(seconds: float | None) -> str | None:
    """Return the time with a resolution of a microsecond, as the Introspection API does."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def iso_exact(seconds: float | None) -> str | None:
    """Return the time with a resolution of a millisecond, for timelines."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
