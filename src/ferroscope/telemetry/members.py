"""What each member reports with its heartbeat; ``finding`` derives findings from it.

Pure functions. A member of another release may report less or more, so every field is optional here. Settings are
compared by fingerprints; their values never leave the process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ferroscope import __version__
from ferroscope.config.options import SIMULATED, Settings
from ferroscope.core.model import Document

_MAX_STATUS_CHARACTERS: Final = 255
_MAX_LOOPS: Final = 64
# Options that may differ between processes, or must not be disclosed.
_LOCAL: Final[Mapping[str, frozenset[str]]] = {
    "api": frozenset({"host", "bare_metal_port", "introspection_port", "threads", "drain_delay"}),
    "database": frozenset({"connection", "pool_size"}),
    "coordination": frozenset({"backend_url"}),
    "worker": frozenset({"threads", "bmc_slots"}),
    "pxe_filter": frozenset(
        {"network", "backends", "interfaces", "http_ports", "relayed_networks", "dhcp_hostsdir", "dnsmasq_pid_file"}
    ),
}
# Sections that only these roles read. In other processes they may differ.
_USED_BY: Final[Mapping[str, frozenset[str]]] = {
    "api": frozenset({"api", "worker", "periodic"}),
    "coordination": frozenset({"periodic"}),
    "failover": frozenset({"failover"}),
    "inspector": frozenset({"api", "worker", "periodic"}),
}
_LOGIN: Final = re.compile(r"//[^/@]*@")
_LOCAL_SECTIONS: Final = frozenset({"log", "metrics"})


def fingerprints(settings: Settings) -> dict[str, str]:
    """Return a short digest of each section of the settings that should be the same in all processes."""
    digests = {}
    for section in settings.names:
        if section in _LOCAL_SECTIONS:
            continue
        values = msgspec.structs.asdict(settings.section(section))
        local = _LOCAL.get(section, frozenset())
        if section == "pxe_filter" and values["unknown_hosts"] == settings.unknown_hosts_by_discovery:
            values["unknown_hosts"] = "discovery"  # derived from another section, which is compared too
        if section == "drivers":  # ferroscope all --simulator enables additional ones
            values["enabled"] = [name for name in values["enabled"] if name not in SIMULATED]
        shared = {name: _public(value) for name, value in values.items() if name not in local and not _secret(name)}
        digests[section] = hashlib.sha256(msgspec.json.encode(shared, order="sorted")).hexdigest()[:12]
    return digests


def _secret(name: str) -> bool:
    return any(word in name for word in ("password", "secret", "token", "credential"))


def _public(value: Any) -> Any:
    """Remove user and password from a URL: a digest with few unknowns could be reversed."""
    return _LOGIN.sub("//", value) if isinstance(value, str) else value


def about(
    settings: Settings, roles: Iterable[str], schema: str, *, skew: float | None, loops: Mapping[str, str]
) -> Document:
    """Return a member's report: ``loops`` maps the name of each of its loops to its last status.

    ``skew`` is the number of seconds by which its clock is ahead of the database's.
    """
    return describer(settings, roles, schema)(skew, loops)


def describer(
    settings: Settings, roles: Iterable[str], schema: str
) -> Callable[[float | None, Mapping[str, str]], Document]:
    """Return a function that creates the report for each heartbeat of a process; the constant part is created once."""
    used = {
        section: digest
        for section, digest in fingerprints(settings).items()
        if section not in _USED_BY or not _USED_BY[section].isdisjoint(roles)
    }
    constant = {
        "version": __version__,
        "schema": schema,
        "roles": list(roles),
        "heartbeat": settings.worker.member_ttl,
        "settings": used,
    }

    def describe(skew: float | None, loops: Mapping[str, str]) -> Document:
        return constant | {
            "clock_skew": None if skew is None else round(skew, 4),
            "loops": {name: text[:_MAX_STATUS_CHARACTERS] for name, text in list(loops.items())[:_MAX_LOOPS]},
        }

    return describe


def summary(loops: Mapping[str, str]) -> str:
    """Return the statuses of all loops in one line, without duplicates."""
    return "; ".join(dict.fromkeys(loops.values()))[:_MAX_STATUS_CHARACTERS]
