"""The one table of inspection states and events; code, docs, metrics and tests all read this.

It must stay the single statement of what may follow what, and of what holds in a state. Every set of
states elsewhere is one of those below (a test sees to it): a new state is a member, a line of ``STATES`` and its
transitions, here, and the code that brings it about. It decides nothing by itself: see ``machine``. Source: the
transition function of the HA specification for ironic-inspector, extended by ``fail``, ``abort``,
``timeout``, ``reapply``, ``enroll``, ``delete`` and the commands.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

# Provision states of the Bare Metal API: another name for the machine's states, not a second machine.
#
# Which one a state of an inspection is shown as stands in the table of ``states``.
#
# Source: the Bare Metal API reference, and the states that its clients wait for.


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


class State(StrEnum):
    """Where the inspection of a node stands; ``none`` means that it was never inspected."""

    NONE = "none"
    STARTING = "starting"
    WAITING = "waiting"
    PROCESSING = "processing"
    REAPPLYING = "reapplying"
    ENROLLING = "enrolling"
    FINISHED = "finished"
    ERROR = "error"


class Event(StrEnum):
    """What may happen to a node; the second group are commands, which leave the state alone."""

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


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """What holds of a node while it is in a state.

    ``provision``: its name in the Bare Metal API; None: as the node rests. ``active``: an inspection is under way;
    ``terminal``: it has ended. ``machine``: it is the machine that is inspected, not data that was stored, so
    whoever ends the inspection powers it off. ``may_boot``: it may get an address from our boot servers.
    ``ramdisk``: one that we have booted may be running on it. ``clears_error``: what went wrong before is over.
    ``log``: what the log says of an inspection that begins in this state.
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


STATES: Final[dict[State, Holds]] = {
    State.NONE: Holds(meaning="The node has never been inspected."),
    State.STARTING: Holds(
        meaning="The inspection is accepted; the machine is being powered on to boot the ramdisk.",
        provision=Provision.INSPECTING,
        initial=True,
        active=True,
        machine=True,
        may_boot=True,
        ramdisk=True,
        clears_error=True,
        log="inspection started",
    ),
    State.WAITING: Holds(
        meaning="The machine boots; the ramdisk's callback is awaited.",
        provision=Provision.INSPECT_WAIT,
        active=True,
        machine=True,
        may_boot=True,
        ramdisk=True,
    ),
    State.PROCESSING: Holds(
        meaning="The callback came; hooks work on its data.",
        provision=Provision.INSPECTING,
        active=True,
        machine=True,
        may_boot=True,
        ramdisk=True,
    ),
    State.REAPPLYING: Holds(
        meaning="Hooks work on data that was stored before, or given; the machine is not touched.",
        provision=Provision.INSPECTING,
        active=True,
        log="stored data is processed again",
    ),
    State.ENROLLING: Holds(
        meaning="An unknown machine called back and becomes a node.",
        provision=Provision.INSPECTING,
        active=True,
        machine=True,
        may_boot=True,
        log="inspection of data that nobody asked for",
    ),
    State.FINISHED: Holds(
        meaning="The inspection succeeded; its results are stored.",
        provision=Provision.MANAGEABLE,
        terminal=True,
        clears_error=True,
    ),
    State.ERROR: Holds(
        meaning="The inspection failed; the reason is on the node and on its timeline.",
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
none       | set-boot-device | none
finished   | set-boot-device | finished
error      | set-boot-device | error
"""


class Transition(msgspec.Struct, frozen=True):
    """One row of the table.

    ``strict``: the task must not take effect twice, so the target is saved before it runs;
    otherwise after it. ``automatic``: follows from the state itself, without a caller.
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
# In the order of their declaration; the Introspection API knows no node that was never inspected.
INSPECTED: Final = tuple(state for state in State if state is not State.NONE)
OF_STATE: Final = {state: holds.provision for state, holds in STATES.items() if holds.provision is not None}
# The provision states in which an inspection is under way, that of its beginning first.
UNDER_WAY: Final = tuple(dict.fromkeys(provision for state, provision in OF_STATE.items() if state in ACTIVE))
# A callback may come: the first one, or one more, which contradicts the first.
MAY_CALL: Final = _sources(Event.CONTINUE)
TAKES_CALLBACK: Final = _sources(Event.CONTINUE, State.PROCESSING)
AWAITED: Final = RAMDISK & TAKES_CALLBACK  # we have booted, or are booting, the machine that shall call
TIMES_OUT: Final = _sources(Event.TIMEOUT, State.ERROR)
# A worker is at it, or a request waits for a worker; while ``waiting`` it is the machine that is waited for.
WORKED_ON: Final = TIMES_OUT - {State.WAITING}
# The state in which an inspection begins that is asked for by this event.
BEGINS: Final = {row.event: row.target for row in TRANSITIONS if row.source in RESTING and row.target in ACTIVE}
# In which state a strict event has begun.
BEGUN_IN: Final = {row.event: row.target for row in TRANSITIONS if row.strict and row.target not in TERMINAL}
# They concern the machine, not its inspection, and leave the state alone.
COMMANDS: Final = frozenset(Event) - {row.event for row in TRANSITIONS if row.source is not row.target}
