"""Each boot host's own addresses: what stands in a URL that leads a machine back to the host that answered it.

With DHCPv6 the boot file is a URL (RFC 5970), and dnsmasq does not put its address into a text; so the addresses are
given, those of all hosts on all hosts. An item is ``HOST ADDRESS``, or ``HOST ADDRESS ADDRESS`` with both families.

``{host}`` in ``[boot] http_url`` stands for the host's own address: only the host whose gate is open answers, over HTTP
too, so a machine has to load from the one that gave it its address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from ferroscope.boot.pools import Address, parse_all
from ferroscope.config.options import BootSettings

HOST: Final = "{host}"

_EXAMPLES: Final = {4: "10.0.0.1", 6: "fd00::1"}


class AddressError(ValueError):
    """An address that is missing or cannot be used; the message says which, why, and how it is written."""


def own(settings: BootSettings, host: str) -> Mapping[int, Address]:
    """Return the host's addresses by family, 4 and 6; ``AddressError`` where any host lacks one that machines need.

    ``PoolError`` where a range is wrong.
    """
    _check_url(settings.http_url)
    found = _parse_all(settings.addresses, settings.hosts)
    ranges = parse_all(settings.ranges, hosts=len(settings.hosts))
    for version, why in _needed(settings, {one.version for one in ranges}):
        lacking = [name for name in settings.hosts if version not in found.get(name, {})]
        if lacking:
            example = ", ".join(f"{name} {_EXAMPLES[version]}{n}" for n, name in enumerate(settings.hosts, start=1))
            raise AddressError(
                f"[boot] addresses has no IPv{version} address of {', '.join(lacking)}, and {why}; "
                f"give each host's, such as: addresses = {example}"
            )
    for name, addresses in found.items():
        for address in addresses.values():
            given = next((str(one) for one in ranges if address in one), None)
            if given is not None:
                raise AddressError(
                    f"[boot] addresses: {name} has {address}, which is in the range {given}, "
                    "so that a machine could be given it; leave it out of [boot] ranges"
                )
    return found.get(host, {})


def literal(address: Address) -> str:
    """Return the address as a URL has it."""
    return f"[{address}]" if address.version == 6 else str(address)


def base_url(settings: BootSettings, host: str) -> str:
    """Return where a web server has the boot files, without a slash at the end; "" where TFTP serves all.

    ``host``: what a URL has for the boot host, where the web server is its own.
    """
    return settings.http_url.replace(HOST, host).rstrip("/")


def _parse_all(texts: Sequence[str], hosts: Collection[str]) -> dict[str, dict[int, Address]]:
    """Return the addresses of each host that has some; ``AddressError`` where one is wrong or is given twice."""
    found: dict[str, dict[int, Address]] = {}
    owners: dict[Address, str] = {}
    for text in texts:
        name, *words = text.split() or [""]
        if name not in hosts:
            raise AddressError(f"[boot] addresses: {text!r} begins with none of [boot] hosts ({', '.join(hosts)})")
        for word in words:
            address = _parse(text, word)
            if address.version in found.setdefault(name, {}):
                raise AddressError(f"[boot] addresses: {name} has two IPv{address.version} addresses; give one of them")
            if owners.setdefault(address, name) != name:
                raise AddressError(f"[boot] addresses: {address} is given to {owners[address]} and to {name}")
            found[name][address.version] = address
    return found


def _needed(settings: BootSettings, versions: Collection[int]) -> Iterator[tuple[int, str]]:
    if 6 in versions:
        yield 6, "[boot] ranges has IPv6 addresses: over IPv6 a machine loads from a URL, which has to name its host"
    if HOST in settings.http_url:
        for version in sorted(versions):
            yield version, f"[boot] http_url has {HOST} in it, where the host's address shall stand"


def _check_url(url: str) -> None:
    if not url:
        return
    example = f"http://{HOST}:8080/ or http://10.0.0.2/boot/"
    plain = url.replace(HOST, "host")
    try:
        parts = urlsplit(plain)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise AddressError(f"[boot] http_url is {url!r}, which is no URL such as {example}")
    odd = next((sign for sign in plain if sign.isspace() or sign in "{}$,\"'#"), None)
    if odd is not None:
        raise AddressError(f"[boot] http_url is {url!r}: {odd!r} cannot be in it; write it such as {example}")


def _parse(text: str, word: str) -> Address:
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        raise AddressError(f"[boot] addresses: in {text!r} {word!r} is no address, such as 10.0.0.11") from None
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise AddressError(f"[boot] addresses: in {text!r} {word} is no address that a URL can lead to")
    return address
