"""Findings of doctor and status: summary; advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferroscope.config.options import ApiSettings, Settings
from ferroscope.core.model import Member
from ferroscope.doctor import host
from ferroscope.telemetry import finding
from ferroscope.telemetry.finding import Finding
from tests.fast.wording.table import wrong
from tests.support import misses


def _finding(found: Finding) -> Callable[[], str]:
    return lambda: f"{found.summary}; {found.advice}"


MEMBER: Final = Member(id="m1", host="boot1", pid=4711, role="worker", expires_at=100.0)

FINDINGS: Final[tuple[tuple[str, Callable[[], str], str], ...]] = (
    (
        "dead member",
        _finding(finding.dead(MEMBER, 110.0)),
        "worker@boot1:4711 missed its heartbeats and has been considered dead for 10 s; its claims and leases were "
        "released; start it again; otherwise it is removed from this list after an hour",
    ),
    (
        "clock skew",
        _finding(finding.skew_of("boot1", 2.5)),
        "the clock of boot1 is 2.5 s ahead of the database's; this affects logs, not leases; synchronize the clock "
        "(chrony, NTP)",
    ),
    (
        "API on loopback",
        _finding(finding.API_ON_LOOPBACK),
        "the API listens on loopback only: ramdisks on other machines cannot call back; set [api] host to an address "
        "that machines can reach, or, behind a proxy, [api] public_url",
    ),
    (
        "proxy that is not trusted",
        lambda: _of_host("proxy-not-trusted", ApiSettings(public_url="https://bmaas.example.com")),
        "the API is behind a proxy (https://bmaas.example.com), but no proxy is trusted: limits by source address "
        "count all clients behind it as one; set [api] trusted_proxies to the addresses from which the proxy connects",
    ),
)


def _of_host(code: str, api: ApiSettings) -> str:
    (found,) = (one for one in host.examine(Settings(api=api)) if one.code == code)
    return _finding(found)()


def test_findings() -> None:
    misses.none(wrong(FINDINGS))
