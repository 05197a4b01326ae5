"""Types that say more in the OpenAPI document than the decoder checks.

What they say is checked by handlers, whose messages tell what to do; a decoder's do not.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.core.states import INSPECTED, Provision


def _says(**schema: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema=schema)


def one_of(*values: str) -> msgspec.Meta:
    """Document the values that are understood."""
    return _says(enum=list(values))


REBOOT: Final = "rebooting"

Uuid = Annotated[str, _says(format="uuid")]
Mac = Annotated[str, _says(pattern="^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")]
Limit = Annotated[int, _says(minimum=1)]
LimitOrZero = Annotated[int, _says(minimum=0)]
SortDir = Annotated[str, one_of("asc", "desc")]
ProvisionState = Annotated[str, one_of(*map(str, Provision))]
IntrospectionState = Annotated[str, one_of(*map(str, INSPECTED))]
Verb = Annotated[str, one_of("abort", "inspect", "manage", "provide")]
PowerState = Annotated[str, one_of(*map(str, Power), REBOOT)]
Device = Annotated[str, one_of(*map(str, BootDevice))]
DriverType = Annotated[str, one_of("classic", "dynamic")]


# The links in answers: where a thing is to be found, with and without the API's version.


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A link; ``type`` is the media type where it is not this API's own."""

    href: str
    rel: str
    type: str | None = None


def pair(url: str, path: str) -> list[Link]:
    """Return the ``self`` and the ``bookmark`` link of ``path``, which is relative to ``/v1``."""
    return [Link(href=f"{url}/v1/{path}", rel="self"), Link(href=f"{url}/{path}", rel="bookmark")]


def own(url: str, path: str) -> list[Link]:
    """Return only the ``self`` link."""
    return [Link(href=f"{url}/v1/{path}", rel="self")]


# Times in answers: ISO 8601, UTC. Inside they are seconds since the epoch.


def iso(seconds: float | None) -> str | None:
    """Return the time to the second, as both published APIs give it."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).isoformat()


def iso_exact(seconds: float | None) -> str | None:
    """Return the time to the millisecond, for timelines."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
