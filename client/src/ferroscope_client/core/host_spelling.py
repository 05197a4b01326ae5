"""The spelling of a host: the canonical one, and those that are refused. Pure.

Programs disagree about an IPv4 address that is not written in four decimal parts: one reads 10.40.0.041 as octal, the
next as decimal, and a third takes it for a name. So such a host is refused in every host and URL, with the address
that it might be read as. Source: inet(3) for the old forms, RFC 6943, section 3.1.1, for the harm.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

_OLD_NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)
_ZONE_IN_URL: Final = re.compile(r"%25(?=.)")
# Scheme and authority of each URL in a text.
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^/?#\s\"']{1,2048})")
# Some programs decode the first of these, and end or continue a host at the second.
_AMBIGUOUS: Final = re.compile(r"[%\\]")
# What follows this scheme is the name of a source of secrets, not a host.
_SECRET_SCHEME: Final = "secret"  # noqa: S105  # a scheme, not a secret
_PARTS: Final = {1: "is a single number", 2: "has two parts", 3: "has three parts"}
_BITS_OF_LAST_PART: Final = {1: 32, 2: 24, 3: 16, 4: 8}
MAX_HOST_LENGTH: Final = 253
"""The longest name in DNS."""


@lru_cache(maxsize=16384)
def canonical_host(text: str) -> str:
    """Return the host in its canonical spelling.

    An IPv6 address is compressed and keeps its zone. A name is in lower case, without a dot at its end."""
    host = text.strip().strip("[]")
    if (address := parse_address(host)) is not None:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return str(mapped or address)
    return _in_ascii(host).lower().rstrip(".")


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address; None for a name, and for the spellings that are refused. The zone may be as in a URL."""
    try:
        return ipaddress.ip_address(_ZONE_IN_URL.sub("%", host) if ":" in host else host)
    except ValueError:
        return None


def _in_ascii(host: str) -> str:
    """Return a name as resolvers look it up: they read digits of other scripts as digits."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def refusal_of_host(text: str) -> str:
    """Return why this spelling of an address is refused, what it might be read as and what to write; "" if it is not.

    A name is never refused here, even if it cannot be one.
    """
    stripped = text.strip().strip("[]")
    shown = stripped[:MAX_HOST_LENGTH]
    if not stripped or parse_address(stripped) is not None:
        return ""
    if _AMBIGUOUS.search(stripped):
        return f"{shown!r} has a percent sign or a backslash, which some programs read as part of another host"
    if stripped.count(":") > 1 and (why := refusal_of_host(stripped.rpartition(":")[2])):
        return f"{shown!r} is not an IPv6 address, because of its end: {why}"
    if ":" in stripped:
        return ""  # the URL or the field is invalid, which its reader reports
    if not stripped.isprintable():
        return f"{shown!r} has an invisible character; write the address without it"
    host = _in_ascii(stripped)
    if host != stripped and parse_address(host) is not None:
        return f"{shown!r} has digits or dots of another script: some programs read it as {host}; write {host}"
    if host.endswith(".") and parse_address(host.rstrip(".")) is not None:
        return f"{shown} has a dot at its end; write {host.rstrip('.')}"
    parts = host.rstrip(".").split(".")
    if not all(_OLD_NUMBER.fullmatch(part) for part in parts):
        return ""
    return f"{shown} {_flaw(parts)}"


def _flaw(parts: list[str]) -> str:
    read_as, meant = _read_as_old_form(parts), _without_zeros(parts)
    taken = f": some programs read it as {read_as}" if read_as and read_as != meant else ""
    if any(part[:2] in ("0x", "0X") for part in parts):
        return f"has a hexadecimal number{taken}; write the four decimal parts of the address that you mean"
    if len(parts) in _PARTS:
        return f"{_PARTS[len(parts)]}{taken}; write the four parts of the address that you mean"
    if not meant and any(part.startswith("0") and len(part) > 1 for part in parts):
        return f"has leading zeros{taken}; write the four parts of the address that you mean"
    if meant:
        return f"has leading zeros{taken}; write {meant}" + (" or the address that you mean" if taken else "")
    if len(parts) > 4:
        return "has more than four parts"
    largest = max(parts, key=lambda part: int(part[:12]))
    return f"is not an IPv4 address: {largest[:12]} is greater than 255"


def _without_zeros(parts: list[str]) -> str:
    """Return the address if all of its parts are decimal; "" if it is not an address."""
    if len(parts) != 4 or not all(part.isdecimal() and len(part) <= 12 and int(part) <= 255 for part in parts):
        return ""
    return ".".join(str(int(part)) for part in parts)


def _read_as_old_form(parts: list[str]) -> str:
    """Return the address that inet_aton makes of it, "" for none."""
    if len(parts) not in _BITS_OF_LAST_PART:
        return ""
    try:
        *first, last = (_number(part) for part in parts)
    except ValueError:
        return ""
    bits = _BITS_OF_LAST_PART[len(parts)]
    if any(number > 255 for number in first) or last >= 1 << bits:
        return ""
    value = last
    for position, number in enumerate(first):
        value |= number << 24 - 8 * position
    return str(ipaddress.IPv4Address(value))


def _number(part: str) -> int:
    digits, base = (part[2:], 16) if part[:2] in ("0x", "0X") else (part, 8 if part.startswith("0") else 10)
    return int(digits.lstrip("0")[:34] or "0", base)


def refusal_of_url(text: str) -> str:
    """Return why this must not be passed on as a URL, "" if it may: other programs may find a host in it.

    Source: libcurl, which many BMCs use, reads ``http:///HOST``, ``http:/HOST`` and ``HOST:/`` as URLs of the host.
    """
    url = _URL.match(text)
    if url is None or not any(_hosts_of_authority(url[2])):
        return f"{text[:80]!r} has no host after its scheme; write SCHEME://HOST/PATH"
    return refusal_of_urls(text)


def refusal_of_urls(value: Any) -> str:
    """Return why a host in one of the URLs is refused, "" if none is; in a text, or at any depth of a document."""
    if isinstance(value, str):
        if "://" not in value:
            return ""
        return next(filter(None, (refusal_of_host(host) for host in _hosts_of_urls(value))), "")
    if isinstance(value, dict):
        return next((f"{key}: {why}" for key, item in value.items() if (why := refusal_of_urls(item))), "")
    if not isinstance(value, list | tuple):
        return ""
    return next(filter(None, map(refusal_of_urls, value)), "")


def _hosts_of_urls(text: str) -> Iterator[str]:
    """Yield the hosts of all URLs in the text; that of a database or a bus may have several."""
    for scheme, authority in _URL.findall(text):
        if scheme.lower() != _SECRET_SCHEME:
            yield from _hosts_of_authority(authority)


def _hosts_of_authority(authority: str) -> Iterator[str]:
    if "\\" in authority:
        yield authority  # even the end of the user name is uncertain
        return
    for place in authority.rpartition("@")[2].split(","):
        yield place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]
