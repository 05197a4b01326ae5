"""Findings: what ``ferroscope doctor`` and the service's status report.

Programs decide by a finding's code, never by its text. The functions here find problems of members: dead members,
different releases or settings, clock skew. Pure functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from ferroscope.core.lookup import RefusedCaller, describe_caller
from ferroscope.core.model import ClockStep, Member, as_document
from ferroscope_client.core.advice import count_callers
from ferroscope_client.core.finding import Finding

# Seconds by which two clocks may differ without a report.
MAX_CLOCK_SKEW_SECONDS: Final = 1.0
_RECENT_SECONDS: Final = 86400.0
# Seconds within which a crashed process is started again.
_LEFT_RUNNING_SECONDS: Final = 60.0


API_ON_LOOPBACK: Final = Finding(
    "api-on-loopback",
    "note",
    "the API listens on loopback only: ramdisks on other machines cannot call back",
    "set [api] host to an address that machines can reach, or, behind a proxy, [api] public_url",
)


UNMANAGED_BOOT: Final = Finding(
    "unmanaged-boot",
    "note",
    "inspections power machines on that boot from a network of which nothing is configured here: if nobody serves the "
    "ramdisk there, they boot their disks",
    "set [inspector] ramdisk_iso or [boot]; or require_managed_boot, to false if another service serves that network",
)


def drift(members: Iterable[Member]) -> list[Finding]:
    """Return a finding for each difference between members that should be the same: release, settings."""
    versions: dict[str, list[str]] = defaultdict(list)
    sections: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for member in members:
        if "version" in member.detail:
            versions[str(member.detail["version"])].append(member.name)
        for section, digest in as_document(member.detail.get("settings")).items():
            sections[str(section)][str(digest)].append(member.name)
    findings = []
    if len(versions) > 1:
        summary = f"members run different releases: {_groups(versions)}"
        findings.append(Finding("releases-differ", "wrong", summary, "finish the upgrade"))
    for section, groups in sorted(sections.items()):
        if len(groups) > 1:
            minority = min(groups.values(), key=len)
            summary = f"the settings in [{section}] differ between members: {_names(minority)} differs from the others"
            advice = "use the same configuration for all processes, and restart those with the wrong one"
            findings.append(Finding("settings-differ", "wrong", summary, advice))
    return findings


def reported_findings(members: Iterable[Member]) -> list[Finding]:
    """Return the findings that these members reported; a member of another release may report anything."""
    findings = []
    for member in members:
        problems = member.detail.get("problems")
        for problem in problems if isinstance(problems, list) else ():
            with suppress(msgspec.ValidationError):
                findings.append(msgspec.convert(problem, Finding))
    return findings


def clock_steps(steps: Iterable[ClockStep], now: float) -> list[Finding]:
    """Return a finding if the database's clock was set within the last day."""
    recent = [step for step in steps if abs(now - step.at) < _RECENT_SECONDS]
    if not recent:
        return []
    by = ", ".join(f"{step.seconds:+.0f} s" for step in recent[-3:])
    summary = f"the database's clock stepped by {by}; leases, heartbeats and inspections were adjusted"
    return [Finding("clock-stepped", "wrong", summary, "synchronize the clock of the database host (chrony, NTP)")]


def lost_commits(proofs: Sequence[str]) -> Finding | None:
    """Return the finding if the database has lost commits; the last of the ``proofs`` is the newest."""
    if not proofs:
        return None
    more = f" (and {len(proofs) - 1} more)" if len(proofs) > 1 else ""
    return Finding(
        "database-lost-commits",
        "wrong",
        f"the database has lost acknowledged commits: {proofs[-1]}{more}",
        "the standby was not synchronous: compare the nodes with what was requested around that time, repeat what is "
        "missing, set synchronous_standby_names on the primary, then restart this process",
    )


def refused_callers(callers: Sequence[RefusedCaller]) -> list[Finding]:
    """Return a finding if machines that belong to no node have called; ``callers``: the newest first."""
    if not callers:
        return []
    summary = f"calls of {count_callers(len(callers))} were refused; the last: {describe_caller(callers[0])}"
    return [Finding("unknown-callers", "note", summary, "list them with 'ferroscope node inbox', and enroll them")]


def left_running(members: Sequence[Member], now: float) -> Finding | None:
    """Return the finding if no member is alive and none has left, as in a restored backup of a running service."""
    last = max((member.expires_at for member in members), default=now)
    if now - last < _LEFT_RUNNING_SECONDS:
        return None
    at = datetime.fromtimestamp(last, UTC)
    return Finding(
        "database-restored",
        "note",
        f"the database is as running processes left it at {at:%Y-%m-%d %H:%M} UTC: it was restored from a backup, or "
        "they all ended at once",
        "machines may have called back since, and their inspections will time out: list them with 'ferroscope node "
        "list --state inspecting', then abort or repeat them",
    )


def clock_skews(members: Iterable[Member]) -> list[Finding]:
    """Return a finding for each host whose clock differs from the database's."""
    worst: dict[str, float] = {}
    for member in members:
        skew = member.detail.get("clock_skew")
        if isinstance(skew, int | float) and is_skewed(skew) and abs(skew) > abs(worst.get(member.host, 0.0)):
            worst[member.host] = float(skew)
    return [skew_of(host, skew) for host, skew in sorted(worst.items())]


def is_skewed(seconds: float) -> bool:
    """Whether a clock differs from the database's by more than usual."""
    return abs(seconds) > MAX_CLOCK_SKEW_SECONDS


def skew_of(host: str, skew: float) -> Finding:
    """Return the finding for a clock that is ``skew`` seconds ahead of the database's."""
    side = "ahead of" if skew > 0 else "behind"
    return Finding(
        "clock-skew",
        "wrong",
        f"the clock of {host} is {abs(skew):.1f} s {side} the database's; this affects logs, not leases",
        "synchronize the clock (chrony, NTP)",
    )


def missing(members: Sequence[Member], now: float) -> list[Member]:
    """Return the dead members without a successor: a member of the same host and role, or of all roles, started after
    their last heartbeat.

    Each successor replaces one member of a role; if it is dead too, it needs a successor itself.
    """
    dead_members: list[Member] = []
    replaced: set[tuple[str, str]] = set()
    by_start = sorted(members, key=lambda member: member.started_at)
    for member in sorted(
        (member for member in members if not member.is_alive(now)), key=lambda member: member.expires_at
    ):
        successors = (new.id for new in by_start if _succeeds(new, member) and (new.id, member.role) not in replaced)
        successor = next(successors, None)
        if successor is None:
            dead_members.append(member)
        else:
            replaced.add((successor, member.role))
    return dead_members


def _succeeds(new: Member, old: Member) -> bool:
    ttl = old.detail.get("heartbeat")
    last_heartbeat = old.expires_at - (ttl if isinstance(ttl, int | float) else 0.0)
    roles = (old.role, "all") if old.role in ("api", "worker", "periodic") else (old.role,)
    return new.host == old.host and new.role in roles and new.started_at > max(last_heartbeat, old.started_at)


def dead(member: Member, now: float) -> Finding:
    """Return the finding for a dead member without a successor."""
    return Finding(
        "member-dead",
        "wrong",
        f"{member.name} missed its heartbeats and has been considered dead for {now - member.expires_at:.0f} s; "
        "its claims and leases were released",
        "start it again; otherwise it is removed from this list after an hour",
    )


def _groups(groups: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{key} ({_names(names)})" for key, names in sorted(groups.items()))


def _names(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
