"""The table of events, and which state of an inspection each leads to: code, docs, metrics and tests all read it.

This is the only declaration of the transitions. Every set of states used elsewhere is one of the sets below, or of the
properties of states (``ferroscope_client.core.states``), checked by a test. To add a state, add a member and its
properties there, its transitions here, and the code that enters it. The decisions are in ``delivery``. Source: the
transition function of the HA specification for ironic-inspector, extended by ``fail``, ``abort``, ``timeout``,
``reapply``, ``enroll``, ``delete`` and the commands.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ferroscope_client.core.states import ACTIVE, RAMDISK, RESTING, TERMINAL, State


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


def _sources(event: Event, target: State | None = None) -> frozenset[State]:
    rows = (row for row in TRANSITIONS if row.event is event)
    return frozenset(row.source for row in rows if target in (None, row.target))


TRANSITIONS: Final = _parse(TABLE)
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
