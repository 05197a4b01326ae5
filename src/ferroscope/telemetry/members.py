"""What each member tells of itself with its heartbeat; what follows from it for the members is in ``finding``.

Pure functions. A member of another release may tell less or more, so nothing here relies on any
of it being there. Settings are compared by fingerprints; no value ever leaves its process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ferroscope import __version__
from ferroscope.config.options import SIMULATED, Settings
from ferroscope.core.model import Document, Member

_SENTENCE: Final = 255
_LOOPS: Final = 64
# What may well differ from process to process, or must not be told.
_LOCAL: Final[Mapping[str, frozenset[str]]] = {
    "api": frozenset({"host", "bare_metal_port", "introspection_port", "threads", "drain_delay"}),
    "database": frozenset({"connection", "pool_size"}),
    "worker": frozenset({"threads", "bmc_slots"}),
    "pxe_filter": frozenset(
        {"network", "backends", "interfaces", "http_ports", "relayed_networks", "dhcp_hostsdir", "dnsmasq_pid_file"}
    ),
}
_LOGIN: Final = re.compile(r"//[^/@]*@")
_OWN_SECTIONS: Final = frozenset({"log", "metrics"})


def fingerprints(settings: Settings) -> dict[str, str]:
    """Return a short digest of each section of the settings that ought to be the same everywhere."""
    found = {}
    for section in settings.__struct_fields__:
        if section in _OWN_SECTIONS:
            continue
        values = msgspec.structs.asdict(getattr(settings, section))
        local = _LOCAL.get(section, frozenset())
        if section == "pxe_filter" and values["unknown_hosts"] == settings.unknown_hosts_by_discovery:
            values["unknown_hosts"] = "discovery"  # it follows another section, which is compared for itself
        if section == "drivers":  # ferroscope all --simulator has more of these, and that is no mistake
            values["enabled"] = [name for name in values["enabled"] if name not in SIMULATED]
        shared = {name: _public(value) for name, value in values.items() if name not in local and not _secret(name)}
        found[section] = hashlib.sha256(msgspec.json.encode(shared, order="sorted")).hexdigest()[:12]
    return found


def _secret(name: str) -> bool:
    return any(word in name for word in ("password", "secret", "token", "credential"))


def _public(value: Any) -> Any:
    """Leave out who logs in to a URL, and how: a digest of few unknowns gives them away."""
    return _LOGIN.sub("//", value) if isinstance(value, str) else value


def about(
    settings: Settings, roles: Iterable[str], schema: str, *, skew: float | None, loops: Mapping[str, str]
) -> Document:
    """Return what a member tells: ``loops`` maps the name of each of its loops to its last status.

    ``skew`` is by how many seconds its clock is ahead of the database's.
    """
    return describer(settings, roles, schema)(skew, loops)


def describer(
    settings: Settings, roles: Iterable[str], schema: str
) -> Callable[[float | None, Mapping[str, str]], Document]:
    """Return ``about`` for each heartbeat of one process; what stays the same is looked at once."""
    same = {
        "version": __version__,
        "schema": schema,
        "roles": list(roles),
        "heartbeat": settings.worker.member_ttl,
        "settings": fingerprints(settings),
    }

    def tell(skew: float | None, loops: Mapping[str, str]) -> Document:
        return same | {
            "clock_skew": None if skew is None else round(skew, 4),
            "loops": {name: text[:_SENTENCE] for name, text in list(loops.items())[:_LOOPS]},
        }

    return tell


def summary(loops: Mapping[str, str]) -> str:
    """Return the loops' statuses as one, each once."""
    return "; ".join(dict.fromkeys(loops.values()))[:_SENTENCE]


def name_of(member: Member) -> str:
    """Return how the member is called in logs and journals."""
    return f"{member.role}@{member.host}:{member.pid}"


def loops_of(member: Member) -> dict[str, str]:
    """Return the last status of each of the member's loops."""
    return {str(name): str(text) for name, text in _dict(member.detail.get("loops")).items()}


def lanes_of(member: Member) -> dict[str, dict[str, int]]:
    """Return how full each lane of the member's worker is, in numbers."""
    lanes = _dict(member.detail.get("lanes"))
    return {
        str(lane): {str(name): number for name, number in _dict(counts).items() if isinstance(number, int)}
        for lane, counts in lanes.items()
    }


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
