"""Types that say more in the OpenAPI document than the decoder checks.

What they say is checked by handlers, whose messages tell what to do; a decoder's do not.
"""

from __future__ import annotations

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
