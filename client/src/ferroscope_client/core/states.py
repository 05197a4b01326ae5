"""The states of nodes and of their inspections, as the API names them, and the properties of each. Pure.

This is their only declaration: code, docs, metrics and tests all read it. Every set of states used elsewhere is one of
the sets below (checked by a test). The service has the table of transitions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

# Provision states of the Bare Metal API. They are derived from the inspection states (``STATES``), not a second state
# machine. Source: the Bare Metal API reference, and the states that its clients wait for.


class Provision(StrEnum):
    """The provision states that an inspection service needs."""

    ENROLL = "enroll"
    VERIFYING = "verifying"
    MANAGEABLE = "manageable"
    AVAILABLE = "available"
    INSPECTING = "inspecting"
    INSPECT_WAIT = "inspect wait"
    INSPECT_FAILED = "inspect failed"


# The states that lists can be filtered by: those of a Bare Metal service that also deploys. Source: its state machine.
PUBLISHED_STATES: Final = (
    *map(str, Provision), "active", "adopt failed", "adopting", "clean failed", "clean hold", "clean wait", "cleaning",
    "deleting", "deploy failed", "deploy hold", "deploying", "error", "rescue", "rescue failed", "rescue wait",
    "rescuing", "service failed", "service hold", "service wait", "servicing", "unrescue failed", "unrescuing",
    "wait call-back",
)  # fmt: skip

# Why a Bare Metal service puts nodes into maintenance; here, only operators do. Source: the API reference.
FAULTS: Final = ("power failure", "clean failure", "rescue abort failure", "service failure")

# Provision states from which an inspection may start.
INSPECTABLE: Final = frozenset({Provision.ENROLL, Provision.MANAGEABLE, Provision.INSPECT_FAILED})

# An unsolicited inspection (the machine called back on its own) leaves these provision states unchanged.
AT_REST: Final = frozenset({Provision.ENROLL, Provision.AVAILABLE})

# The verbs of PUT states/provision that need no inspection: verb -> {from: to}.
RESTING_VERBS: Final[dict[str, dict[Provision, Provision]]] = {
    "manage": {
        Provision.ENROLL: Provision.VERIFYING,
        Provision.AVAILABLE: Provision.MANAGEABLE,
        Provision.INSPECT_FAILED: Provision.MANAGEABLE,
    },
    "provide": {Provision.MANAGEABLE: Provision.AVAILABLE},
}


class State(StrEnum):
    """The state of a node's inspection; ``none``: it was never inspected."""

    NONE = "none"
    STARTING = "starting"
    WAITING = "waiting"
    PROCESSING = "processing"
    REAPPLYING = "reapplying"
    ENROLLING = "enrolling"
    FINISHED = "finished"
    ERROR = "error"


class StateFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a state.

    ``provision``: its provision state in the Bare Metal API; None: the provision state is unchanged. ``active``: an
    inspection is in progress; ``terminal``: it has ended. ``machine``: the machine itself is inspected, not stored
    data, so it is powered off at the end. ``may_boot``: it may get an address from our DHCP servers. ``ramdisk``: a
    ramdisk that we booted may be running on it. ``clears_error``: entering it clears the last error. ``log``: the log
    event of an inspection that begins in this state.
    """

    meaning: str
    provision: Provision | None = None
    initial: bool = False
    active: bool = False
    terminal: bool = False
    machine: bool = False
    may_boot: bool = False
    ramdisk: bool = False
    clears_error: bool = False
    log: str | None = None


STATES: Final[dict[State, StateFlags]] = {
    State.NONE: StateFlags(meaning="The node has never been inspected."),
    State.STARTING: StateFlags(
        meaning="The inspection was accepted; the machine is being powered on to boot the ramdisk.",
        provision=Provision.INSPECTING,
        initial=True,
        active=True,
        machine=True,
        may_boot=True,
        ramdisk=True,
        clears_error=True,
        log="inspection started",
    ),
    State.WAITING: StateFlags(
        meaning="The machine is booting; waiting for the ramdisk's callback.",
        provision=Provision.INSPECT_WAIT,
        active=True,
        machine=True,
        may_boot=True,
        ramdisk=True,
    ),
    State.PROCESSING: StateFlags(
        meaning="The callback was received; hooks are processing its data.",
        provision=Provision.INSPECTING,
        active=True,
        machine=True,
        may_boot=True,
        ramdisk=True,
    ),
    State.REAPPLYING: StateFlags(
        meaning="Hooks are processing stored or supplied data; the machine is not touched.",
        provision=Provision.INSPECTING,
        active=True,
        log="reapplying stored data",
    ),
    State.ENROLLING: StateFlags(
        meaning="An unknown machine called back and is being enrolled as a node.",
        provision=Provision.INSPECTING,
        active=True,
        machine=True,
        may_boot=True,
        log="unsolicited inspection started",
    ),
    State.FINISHED: StateFlags(
        meaning="The inspection succeeded; its results are stored.",
        provision=Provision.MANAGEABLE,
        terminal=True,
        clears_error=True,
    ),
    State.ERROR: StateFlags(
        meaning="The inspection failed; the node and its timeline show the reason.",
        provision=Provision.INSPECT_FAILED,
        terminal=True,
    ),
}


def _where(flag: str) -> frozenset[State]:
    return frozenset(state for state, holds in STATES.items() if getattr(holds, flag))


INITIAL: Final = _where("initial")
ACTIVE: Final = _where("active")
TERMINAL: Final = _where("terminal")
RESTING: Final = frozenset(State) - ACTIVE
MACHINE: Final = _where("machine")
MAY_BOOT: Final = _where("may_boot")
RAMDISK: Final = _where("ramdisk")
CLEARS_ERROR: Final = _where("clears_error")
# In order of declaration; the Introspection API does not show nodes that were never inspected.
INSPECTED: Final = tuple(state for state in State if state is not State.NONE)
OF_STATE: Final = {state: holds.provision for state, holds in STATES.items() if holds.provision is not None}
# The provision states of an inspection in progress, the first one first.
UNDER_WAY: Final = tuple(dict.fromkeys(provision for state, provision in OF_STATE.items() if state in ACTIVE))
# The service works on the node.
BUSY: Final = (*UNDER_WAY, Provision.VERIFYING)
# The phases of an inspection by a ramdisk, in their order.
PHASES: Final = tuple(state for state in State if state in RAMDISK)
