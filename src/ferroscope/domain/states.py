"""The one table of inspection states and events; code, docs, metrics and tests all read this.

It must stay the single statement of what may follow what, and of what holds in a state; every set
of states elsewhere is one of those below. It decides nothing by itself: see ``machine``. Source: the
transition function of the HA specification for ironic-inspector, extended by ``fail``, ``abort``,
``timeout``, ``reapply``, ``enroll``, ``delete`` and the commands.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


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


# What holds of a machine while its node is in the state. May boot: it may get an address from our boot
# servers. Ramdisk: one that we have booted may be running on it.
STATES: Final = """
none       |
enrolling  | may boot
starting   | may boot, ramdisk
waiting    | may boot, ramdisk
processing | may boot, ramdisk
reapplying |
finished   |
error      |
"""

# Flags: "*" initial, "+" terminal (on states); "~" automatic, "!" strict (on events).
TABLE: Final = """
none        | inspect    | starting
none        | enroll     | enrolling
enrolling   | continue ! | processing
starting *  | inspect    | starting
starting *  | wait ~     | waiting
starting *  | continue ! | processing
waiting     | wait ~     | waiting
waiting     | continue ! | processing
processing  | continue ! | error
processing  | finish ~   | finished
finished +  | inspect    | starting
finished +  | reapply !  | reapplying
finished +  | abort      | error
finished +  | enroll     | enrolling
error +     | inspect    | starting
error +     | reapply !  | reapplying
error +     | enroll     | enrolling
reapplying  | reapply !  | reapplying
reapplying  | finish ~   | finished
starting *  | timeout    | error
waiting     | timeout    | error
processing  | timeout    | error
starting *  | abort      | error
waiting     | abort      | error
processing  | abort      | error
reapplying  | abort      | error
enrolling   | abort      | error
starting *  | fail       | error
waiting     | fail       | error
processing  | fail       | error
reapplying  | fail       | error
enrolling   | fail       | error
none        | delete     | none
enrolling   | delete     | none
starting *  | delete     | none
waiting     | delete     | none
processing  | delete     | none
reapplying  | delete     | none
finished +  | delete     | none
error +     | delete     | none
none        | verify     | none
finished +  | verify     | finished
error +     | verify     | error
none        | set-power  | none
finished +  | set-power  | finished
error +     | set-power  | error
none        | set-boot-device | none
finished +  | set-boot-device | finished
error +     | set-boot-device | error
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


def _flagged(table: str, flag: str) -> frozenset[State]:
    sources = (line.split("|")[0].split() for line in table.strip().splitlines())
    return frozenset(State(cell[0]) for cell in sources if flag in cell)


def _where(holds: str) -> frozenset[State]:
    rows = (line.split("|") for line in STATES.strip().splitlines())
    return frozenset(State(state.strip()) for state, flags in rows if holds in flags)


def _sources(event: Event, target: State) -> frozenset[State]:
    return frozenset(row.source for row in TRANSITIONS if row.event is event and row.target is target)


TRANSITIONS: Final = _parse(TABLE)
INITIAL: Final = _flagged(TABLE, "*")
TERMINAL: Final = _flagged(TABLE, "+")
RESTING: Final = TERMINAL | {State.NONE}
ACTIVE: Final = frozenset(State) - RESTING
MAY_BOOT: Final = _where("may boot")
RAMDISK: Final = _where("ramdisk")
TAKES_CALLBACK: Final = _sources(Event.CONTINUE, State.PROCESSING)
AWAITED: Final = RAMDISK & TAKES_CALLBACK  # we have booted, or are booting, the machine that shall call
TIMES_OUT: Final = _sources(Event.TIMEOUT, State.ERROR)
# In which state a strict event has begun.
BEGUN_IN: Final = {row.event: row.target for row in TRANSITIONS if row.strict and row.target not in TERMINAL}
# They concern the machine, not its inspection, and leave the state alone.
COMMANDS: Final = frozenset(Event) - {row.event for row in TRANSITIONS if row.source is not row.target}
