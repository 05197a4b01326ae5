"""dnsmasq's lines for proxy DHCP: another server assigns the addresses, and dnsmasq only names the boot file.

Firmware asks for both at once on port 67, and UEFI for the boot file on port 4011, always with its MAC address in the
message, so the PXE filter decides here, too. Only firmware and iPXE (``PXEClient``) are answered; IPv4 only. UEFI that
boots over HTTP (``HTTPClient``) is not answered: it needs the URL in the message that has the address. Sources:
dnsmasq(8); the PXE specification 2.1, sections 2.2 and 3.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final

from ferroscope.config.options import BootSettings

# Names of client architectures in dnsmasq's ``pxe-service``, for each kind of loader: UEFI asks for it on port 4011.
# BIOS takes it from the first answer (``dhcp-boot``), which needs no menu. 32-bit UEFI is missing on purpose.
_SERVICES: Final[Mapping[str, tuple[str, ...]]] = {
    "x64": ("BC_EFI", "X86-64_EFI"),
    "arm64": ("ARM64_EFI",),
}
_TITLE: Final = "Ferroscope"


class ProxyError(ValueError):
    """An invalid network; the message says which, why, and what is expected."""


def networks(settings: BootSettings) -> tuple[ipaddress.IPv4Network, ...]:
    """Return the networks in which another server assigns addresses; ``ProxyError``."""
    parsed = []
    for text in settings.proxied_networks:
        try:
            parsed.append(ipaddress.IPv4Network(text.strip()))
        except ValueError as exc:
            raise ProxyError(
                f"[boot] proxied_networks: invalid network {text!r} ({exc}); expected, for example, 10.0.0.0/24"
            ) from None
    return tuple(parsed)


def lines(settings: BootSettings, loaders: Mapping[str, str]) -> Iterator[str]:
    """Yield dnsmasq's lines for these networks. ``loaders``: file by kind of firmware.

    ``ProxyError``.
    """
    parsed = networks(settings)
    if not parsed:
        return
    yield "# Another DHCP server assigns the addresses here; this host only tells machines where to boot from."
    yield from (f"dhcp-range={network.network_address},proxy,{network.netmask}" for network in parsed)
    for kind, names in _SERVICES.items():
        yield from (f"pxe-service=tag:!ipxe,{name},{_TITLE},{loaders[kind]}" for name in names)
