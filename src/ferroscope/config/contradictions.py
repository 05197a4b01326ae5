"""Settings that are right one by one and wrong together; an inequality that does not hold is said."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from ferroscope.config.settings import Settings

LEVELS: Final = ("debug", "info", "warning", "error")

# What one renewal may take, in seconds; a lease that leaves no room for it is lost as soon as it is taken.
_ROOM: Final = 0.5


def contradictions(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each contradiction: the inequality, and the numbers that break it."""
    lease, worker, api = settings.lease.numbers(), settings.worker, settings.api
    least = lease.renew + lease.margin + _ROOM
    if lease.ttl < least:
        yield (
            f"[lease] ttl must be at least renew + margin + {_ROOM:g} s, else nobody leads for long enough to do "
            f"anything; it is {lease.ttl:g}, and they make {least:g}"
        )
    for part, level in settings.log.levels.items():
        if level not in LEVELS:
            yield f"[log] levels: {level!r} of {part} is not a level; it has to be one of {', '.join(LEVELS)}"
    if worker.member_ttl < 2 * worker.heartbeat_interval:
        yield (
            "[worker] member_ttl must be at least 2 * heartbeat_interval, else a process that is well counts as dead; "
            f"it is {worker.member_ttl:g}, and twice the interval is {2 * worker.heartbeat_interval:g}"
        )
    if api.bare_metal_port and api.bare_metal_port == api.introspection_port:
        yield (
            "[api] bare_metal_port and introspection_port must differ (0 disables one of them); "
            f"both are {api.bare_metal_port}"
        )
    networks = {"[api] trusted_proxies": api.trusted_proxies, "[drivers] bmc_networks": settings.drivers.bmc_networks}
    for option, texts in networks.items():
        for text in texts:
            try:
                ipaddress.ip_network(text)
            except ValueError as exc:
                yield f"{option}: {exc}; expected an address or a network, such as 192.0.2.10 or 10.0.0.0/24"
    if not settings.drivers.ca_directory.startswith("/"):
        yield f"[drivers] ca_directory must be an absolute path; it is {settings.drivers.ca_directory!r}"
