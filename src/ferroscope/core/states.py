"""The table of inspection states and events, which code, docs, metrics and tests all read.

This is the only declaration of the transitions and of the properties of each state. Every set of states used
elsewhere is one of the sets below (checked by a test). To add a state, add a member, a row in ``STATES`` and its
transitions here, and the code that enters it. The decisions are in ``delivery``. Source: the transition function of
the HA specification for ironic-inspector, extended by ``fail``, ``abort``, ``timeout``, ``reapply``, ``enroll``,
``delete`` and the commands.
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


class Event(StrEnum):
    """Events of a node. The second group are commands, which do not change the state."""

    INSPECT = "inspect"
    WAIT = "wait"
    CONTINUE = "continue"
    FINISH = "finish"
    TIMEOUT = "timeout"
    ABORT = "abort"
    FAIL = "fail"
    REAPPLY = "reapply"
    ENROLL = "enroll"
    DELETE = "delete"

    VERIFY = "verify"
    SET_POWER = "set-power"
    SET_BOOT_DEVICE = "set-boot-device"
    ATTACH_VMEDIA = "attach-vmedia"
    DETACH_VMEDIA = "detach-vmedia"
    SET_PASSWORD = "set-password"  # noqa: S105  # the name of an event


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

# Flags of events: "~" automatic, "!" strict.
TABLE: Final = """
none       | inspect         | starting
none       | enroll          | enrolling
enrolling  | continue !      | processing
starting   | inspect         | starting
starting   | wait ~          | waiting
starting   | continue !      | processing
waiting    | inspect         | starting
waiting    | wait ~          | waiting
waiting    | continue !      | processing
processing | continue !      | error
processing | finish ~        | finished
finished   | inspect         | starting
finished   | reapply !       | reapplying
finished   | abort           | error
finished   | enroll          | enrolling
error      | inspect         | starting
error      | reapply !       | reapplying
error      | enroll          | enrolling
reapplying | reapply !       | reapplying
reapplying | finish ~        | finished
starting   | timeout         | error
waiting    | timeout         | error
processing | timeout         | error
starting   | abort           | error
waiting    | abort           | error
processing | abort           | error
reapplying | abort           | error
enrolling  | abort           | error
starting   | fail            | error
waiting    | fail            | error
processing | fail            | error
reapplying | fail            | error
enrolling  | fail            | error
none       | delete          | none
enrolling  | delete          | none
starting   | delete          | none
waiting    | delete          | none
processing | delete          | none
reapplying | delete          | none
finished   | delete          | none
error      | delete          | none
none       | verify          | none
finished   | verify          | finished
error      | verify          | error
none       | set-power       | none
finished   | set-power       | finished
error      | set-power       | error
waiting    | set-power       | waiting
none       | set-boot-device | none
finished   | set-boot-device | finished
error      | set-boot-device | error
none       | attach-vmedia   | none
finished   | attach-vmedia   | finished
error      | attach-vmedia   | error
none       | detach-vmedia   | none
finished   | detach-vmedia   | finished
error      | detach-vmedia   | error
none       | set-password    | none
finished   | set-password    | finished
error      | set-password    | error
"""


class Transition(msgspec.Struct, frozen=True):
    """One row of the table.

    ``strict``: the task must not take effect twice, so the target state is saved before it runs, otherwise after it.
    ``automatic``: follows from the state itself, without a caller.
    """

    source: State
    event: Event
    target: State
    strict: bool = False
    automatic: bool = False


def _parse(table: str) -> tuple[Transition, ...]:
    rows = []
    for line in table.strip().splitlines():
        source, event, target = (cell.split() for cell in line.split("|"))
        rows.append(
            Transition(
                source=State(source[0]),
                event=Event(event[0]),
                target=State(target[0]),
                strict="!" in event,
                automatic="~" in event,
            )
        )
    return tuple(rows)


def _where(flag: str) -> frozenset[State]:
    return frozenset(state for state, holds in STATES.items() if getattr(holds, flag))


def _sources(event: Event, target: State | None = None) -> frozenset[State]:
    rows = (row for row in TRANSITIONS if row.event is event)
    return frozenset(row.source for row in rows if target in (None, row.target))


TRANSITIONS: Final = _parse(TABLE)
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
# Callbacks may arrive: the first one, or a second one that conflicts with the first.
MAY_CALL: Final = _sources(Event.CONTINUE)
TAKES_CALLBACK: Final = _sources(Event.CONTINUE, State.PROCESSING)
AWAITED: Final = RAMDISK & TAKES_CALLBACK  # the callback of a machine that we boot
TIMES_OUT: Final = _sources(Event.TIMEOUT, State.ERROR)
# A worker is processing it or a request is queued. In ``waiting``, the service waits for the machine.
WORKED_ON: Final = TIMES_OUT - {State.WAITING}
# A failed command is shown as the node's last error, because no inspection is in progress.
SHOWS_FAILED_COMMAND: Final = _sources(Event.SET_POWER)
# The state in which an inspection requested by this event begins.
BEGINS: Final = {row.event: row.target for row in TRANSITIONS if row.source in RESTING and row.target in ACTIVE}
# The state that is saved when a strict event begins.
BEGUN_IN: Final = {row.event: row.target for row in TRANSITIONS if row.strict and row.target not in TERMINAL}
# Events that concern the machine, not its inspection, and do not change the state.
COMMANDS: Final = frozenset(Event) - {row.event for row in TRANSITIONS if row.source is not row.target}
