"""The names by which this service may be called: protection against DNS rebinding.

A web page can let its own name resolve to the address of this service; the browser then takes the service for the
page's server and lets the page read everything. The browser still sends the page's name as ``Host``, so a request with
a name that is not ours is rejected. An IP address cannot be rebound, so load balancers, ramdisks and BMCs that call by
address need no configuration; nor do clients without ``Host``, which are not browsers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ferroscope.api.http.errors import ApiError, BadRequestError
from ferroscope.api.http.rate_limit import parse
from ferroscope.config.options import Settings

# The header is copied into every link. Host names with an underscore exist, whatever the RFCs say. HTTP/1.0 has no Host
# header.
_HEADER: Final = re.compile(
    r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}(?:%25[A-Za-z0-9._-]{1,64})?\])?(?::[0-9]{0,5})?"
)
_ANY: Final = "*"
_LOOPBACK: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_HOSTS_FILE: Final = Path("/etc/hosts")


class MisdirectedError(ApiError):
    """The request is for a host name that is not one of this service."""

    status = 421


class Hosts:
    """Decides on the ``Host`` header; ``.example.org`` stands for the subdomains of a domain, ``*`` for any name."""

    def __init__(self, names: Iterable[str]) -> None:
        known = {name.lower().rstrip(".") for name in names}
        self._any = _ANY in known
        self._names = frozenset(known)
        self._suffixes = tuple(name for name in known if name.startswith("."))

    def check(self, header: str) -> None:
        """Raise ``BadRequestError`` if the header is invalid, ``MisdirectedError`` if the name is not ours."""
        if _HEADER.fullmatch(header) is None:
            raise BadRequestError("Invalid Host header: expected HOST[:PORT].")
        name = _name(header)
        if self._any or not name or name in self._names or parse(name) is not None or name.endswith(self._suffixes):
            return
        raise MisdirectedError(
            f'"{name}" is not a name of this service; use its IP address, or add the name to [api] '
            "allowed_hosts or public_url."
        )


def known_names(settings: Settings) -> Iterator[str]:
    """Yield the names of this service: configured ones, loopback, and those of this host."""
    yield from settings.api.allowed_hosts
    yield from settings.api.host
    yield from _LOOPBACK
    for url in (settings.api.public_url, settings.inspector.callback_endpoint_override, settings.boot.callback_url):
        yield _host_of(url)
    yield from _own_names(socket.gethostname())


def _name(header: str) -> str:
    """Return the host in ``HOST[:PORT]``, in lower case."""
    host = header.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0].replace("%25", "%")
    return host.partition(":")[0].rstrip(".")


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or "localhost"
    except ValueError:  # reported where the URL is used
        return "localhost"


def _own_names(hostname: str) -> Iterator[str]:
    """Yield this host's names, from its configuration only: a DNS query could delay the start."""
    yield hostname
    yield hostname.partition(".")[0]
    try:
        lines = _HOSTS_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        names = line.partition("#")[0].split()[1:]
        if hostname in names:
            yield from names
