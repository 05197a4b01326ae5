"""How a request reaches a BMC behind another one: the options of ipmitool for ``ipmi_bridging``.

A chassis' own controller passes requests on over its IPMB, over one channel (single) or two (dual).
Names and meaning are those of the Bare Metal service's ipmi driver. Pure.
"""

from __future__ import annotations

from typing import Final

from ferroscope.bmc.driver_info import wrong
from ferroscope.bmc.ipmi.numbers import number
from ferroscope.core.model import Document

KINDS: Final = ("no", "single", "dual")
# Field -> ipmitool's option and the greatest value; channels are 0 to 15, addresses a byte.
_TARGET: Final = {"ipmi_target_channel": ("-b", 0x0F), "ipmi_target_address": ("-t", 0xFF)}
_TRANSIT: Final = {"ipmi_transit_channel": ("-B", 0x0F), "ipmi_transit_address": ("-T", 0xFF)}
_LOCAL: Final = {"ipmi_local_address": ("-m", 0xFF)}

PROPERTIES: Final[dict[str, str]] = {
    "ipmi_bridging": f"One of {', '.join(KINDS)} (no unless set): the BMC is behind that of ipmi_address.",
    "ipmi_target_channel": "Channel to the BMC, 0 to 15. Needed for single and dual bridging.",
    "ipmi_target_address": "IPMB address of the BMC, such as 0x82. Needed for single and dual bridging.",
    "ipmi_transit_channel": "Channel to the BMC in between. Needed for dual bridging.",
    "ipmi_transit_address": "IPMB address of the BMC in between. Needed for dual bridging.",
    "ipmi_local_address": "Local IPMB address for bridging. Optional.",
}


def options(info: Document) -> tuple[str, ...]:
    """Return ipmitool's options, none where there is no bridging; ``BmcError`` where something is missing."""
    kind = info.get("ipmi_bridging") or "no"
    if kind not in KINDS:
        raise wrong(f"ipmi_bridging must be one of {', '.join(KINDS)}")
    if kind == "no":
        return ()
    needed = _TARGET if kind == "single" else _TRANSIT | _TARGET
    missing = [name for name in needed if info.get(name) in (None, "")]
    if missing:
        raise wrong(f"ipmi_bridging {kind} needs {' and '.join(missing)} too")
    words: list[str] = []
    for name, (option, most) in (_LOCAL | needed).items():
        value = number(info, name, 0, most)
        if value is not None:
            words += [option, str(value)]
    return tuple(words)
