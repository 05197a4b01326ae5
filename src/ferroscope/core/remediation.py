"""The record of what was done about one failure of a cluster's node, from which a successor goes on.

It is stored before each effect that it announces, under the lease of the leader. Times are seconds since the Unix epoch
by the database's clock when the leader of ``epoch`` began, and then by that leader's own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ferroscope_client.core.node import Document


class Phase(StrEnum):
    """How far a remediation has got; ``DONE`` and ``CANCELLED`` are its ends."""

    DWELL = "dwell"
    POWERING_OFF = "powering-off"
    EVACUATING = "evacuating"
    EVACUATED = "evacuated"
    RETURNING = "returning"
    DONE = "done"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({Phase.DONE, Phase.CANCELLED})


class Proof(StrEnum):
    """Why it is certain that the node's pods do not run; ``NONE``: it is not."""

    NONE = ""
    POWER_OFF = "power-off"
    CONFIRMED = "confirmed"
    # ``[failover] mode = label``: no proof; the operator has declared that these pods may run twice.
    LABEL = "label"


class Pause(msgspec.Struct, frozen=True):
    """An operator has stopped all remediation in a cluster: why, who, and when by the database's clock."""

    why: str
    by: str
    at: float


class Sighting(msgspec.Struct, frozen=True):
    """The BMC reported that the machine is off; ``renewal`` is the node's last renewal of its lease at that time."""

    at: float
    renewal: str


class Remediation(msgspec.Struct, kw_only=True, frozen=True):
    """What was done about one failure of a node.

    ``machine`` is the UUID of the node's machine here, "" if it is not known. ``boot_id`` and ``renewal`` are those at
    the time of the failure. ``failed_at``: since when the cluster considers it failed; ``not_before``: nothing is
    forced earlier, ``patience`` seconds after that was decided.

    ``command_at``: when the last power command was announced, and ``command_epoch`` by which leader; ``commands``: so
    many were sent that have not taken effect; ``commanded``: we have powered the machine off; ``inspected``: and had it
    inspected; ``left_off``: what people should know about a machine that we have powered off, and that stays so.
    ``stopped``: the code of why this remediation forces nothing more. ``escalated``: the reason because of which people
    were called. ``old_confirmation``: the operator's annotation that the machine is off is from before this failure, or
    was wrong, and counts again once it was removed. ``detached``: the node is gone, or has booted elsewhere, and only
    its machine, which we have powered off, is still watched. ``place``: where the BMC is that was commanded, or that
    has said that the machine is off, in words. ``acted``: the reason for which something was done last.
    ``bmc_said_off``: that was the proof in the boot of ``boot_id``. ``doubts_bmc``: the node has lived on in that boot.

    ``groups``: the quorum groups of the node when it failed. ``wanted``: why it was out of service on purpose then,
    such as ``paused``. ``boot``: what its BMC has shown since of a boot that is not ours: ``off``, or ``booting``.
    ``power_offs``: when its machine was powered off, also for earlier failures. ``progress_at``: when something was
    done for the last time; 0 as long as somebody wants the node to be out of service.

    ``terminating``: UIDs of pods that are being deleted, and since when we have known; ``dead``: those that a reboot
    has proven dead; ``detach``: volumes of pods that were deleted. ``reason`` is the code of why no more
    happens now, ``since`` when, and ``message`` the same for people. ``log`` is the evidence: what was done and seen,
    oldest first.
    """

    uuid: str
    cluster: str
    node: str
    node_uid: str
    machine: str = ""
    phase: Phase = Phase.DWELL
    proof: Proof = Proof.NONE
    boot_id: str = ""
    renewal: str = ""
    started_at: float = 0.0
    not_before: float = 0.0
    patience: float = 0.0
    command_at: float = 0.0
    command_epoch: int = 0
    updated_at: float = 0.0
    ended_at: float | None = None
    epoch: int = 0
    off_seen: Sighting | None = None
    tainted: bool = False
    commanded: bool = False
    inspected: bool = False
    failed_at: float = 0.0
    commands: int = 0
    since: float = 0.0
    stopped: str = ""
    escalated: str = ""
    left_off: str = ""
    old_confirmation: bool = False
    detached: bool = False
    place: str = ""
    acted: str = ""
    bmc_said_off: bool = False
    doubts_bmc: bool = False
    proven_at: float = 0.0
    groups: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    boot: str = ""
    power_offs: tuple[float, ...] = ()
    progress_at: float = 0.0
    terminating: dict[str, float] = {}
    dead: tuple[str, ...] = ()
    detach: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    log: tuple[Document, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether nothing more is done about this failure."""
        return self.phase in ENDED

    @property
    def settled(self) -> bool:
        """Whether it is settled that ``machine`` is the node's: its power was commanded, or proves something."""
        return bool(self.machine) and (self.commanded or self.phase is not Phase.DWELL)


def postpone(record: Remediation, now: float, seconds: float) -> Remediation:
    """Return the record with nothing forced in the next ``seconds``."""
    return msgspec.structs.replace(record, not_before=now + seconds, patience=seconds)


# More would bloat a record whose remediation makes no progress.
MAX_LOG: Final = 100


def log_evidence(record: Remediation, at: float, kind: str, text: str) -> Remediation:
    """Return the record with another line of evidence; the oldest ones are kept, and the newest."""
    log = (*record.log, {"at": at, "what": kind, "text": text})
    if len(log) > MAX_LOG:
        log = log[: MAX_LOG // 2] + log[-MAX_LOG // 2 :]
    return msgspec.structs.replace(record, log=log)
