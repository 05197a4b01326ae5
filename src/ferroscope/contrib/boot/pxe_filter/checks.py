"""What ``[pxe_filter]`` must say before the filter is installed, and the closed filter that follows from it."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from ferroscope.config.errors import OptionRefusedError
from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contrib.boot.pxe_filter.backends.build import BACKENDS, rules_of

# A subset of the characters that Linux allows, without any that nft or iptables interpret.
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")


def check(settings: Settings) -> None:
    """Raise ``OptionRefusedError`` if the settings are invalid."""
    filter_settings = settings.pxe_filter
    check_backends(filter_settings)
    if not filter_settings.interfaces and {"nftables", "iptables"}.intersection(filter_settings.backends):
        raise OptionRefusedError("[pxe_filter] interfaces is empty; set it to the interfaces on which machines boot")
    for name in filter_settings.interfaces:
        if not _INTERFACE.fullmatch(name):
            raise OptionRefusedError(
                f"[pxe_filter] interfaces has the invalid name {name!r}: expected at most 15 letters, digits and "
                "_.@-, without wildcards; to list interfaces, run: ip link"
            )
    if not filter_settings.sync_period and not filter_settings.channels:
        raise OptionRefusedError(
            "[pxe_filter] sync_period = 0 requires channels = true; otherwise the filter would miss changes"
        )
    try:
        rules = rules_of(filter_settings)
        for text in rules.relayed:
            ipaddress.ip_network(text, strict=False)
    except ValueError as exc:
        raise OptionRefusedError(f"[pxe_filter] relayed_networks: {exc}") from exc


def check_backends(settings: PxeFilterSettings) -> None:
    """Raise ``OptionRefusedError`` if the backends are invalid."""
    unknown = [name for name in settings.backends if name not in BACKENDS]
    if unknown or not settings.backends:
        raise OptionRefusedError(
            f"[pxe_filter] backends has the unknown backend {unknown[0]!r}; available: {', '.join(BACKENDS)}"
            if unknown
            else f"[pxe_filter] backends is empty; available: {', '.join(BACKENDS)}"
        )
    if "dnsmasq" in settings.backends and not settings.dhcp_hostsdir:
        raise OptionRefusedError(
            "[pxe_filter] dhcp_hostsdir is not set; set it to the directory of dnsmasq's dhcp-hostsdir"
        )


def closed_ruleset(settings: Settings) -> str:
    """Return the closed filter as input for ``nft -f``; ``OptionRefusedError``."""
    from ferroscope.contrib.boot.pxe_filter.backends.nftables import ruleset

    check(settings)
    backends = settings.pxe_filter.backends
    if "nftables" not in backends:
        raise OptionRefusedError(
            f"[pxe_filter] backends is {','.join(backends)}, without nftables: "
            "nothing would ever open the filter of this ruleset, so do not load it on this host"
        )
    return ruleset(rules_of(settings.pxe_filter))


def table_of(settings: Settings) -> str:
    """Return the name of the filter's table in nftables."""
    return rules_of(settings.pxe_filter).table
