"""Provision states of the Bare Metal API: another name for the machine's states, not a second machine.

Which one a state of an inspection is shown as stands in the table of ``states``.

Source: the Bare Metal API reference, and the states that its clients wait for.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Provision(StrEnum):
    """The provision states that an inspection service needs."""

    ENROLL = "enroll"
    VERIFYING = "verifying"
    MANAGEABLE = "manageable"
    AVAILABLE = "available"
    INSPECTING = "inspecting"
    INSPECT_WAIT = "inspect wait"
    INSPECT_FAILED = "inspect failed"


# From where an inspection may start; everything else must be brought there first.
INSPECTABLE: Final = frozenset({Provision.ENROLL, Provision.MANAGEABLE, Provision.INSPECT_FAILED})

# An inspection for which nobody asked, because the machine called by itself, leaves these alone.
AT_REST: Final = frozenset({Provision.ENROLL, Provision.AVAILABLE})

# The verbs of PUT states/provision that rest on the node alone: verb -> {from: to}.
RESTING_VERBS: Final[dict[str, dict[Provision, Provision]]] = {
    "manage": {
        Provision.ENROLL: Provision.VERIFYING,
        Provision.AVAILABLE: Provision.MANAGEABLE,
        Provision.INSPECT_FAILED: Provision.MANAGEABLE,
    },
    "provide": {Provision.MANAGEABLE: Provision.AVAILABLE},
}
