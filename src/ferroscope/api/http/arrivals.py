"""What every request passes before its route is known: its ID, the name of its host, and its path.

*IDs*: one for each call, in its response and in each of its log lines. A caller may send its own ID in
``X-Openstack-Request-Id``, to find its calls in the logs of several services. It only goes into our log, as
``global_request_id``: a caller must not choose the ID by which we tell calls apart.
Source: the OpenStack API guidelines on request IDs, oslo.middleware.

*Hosts*: the names by which this service may be called, a protection against DNS rebinding. A web page can let its own
name resolve to the address of this service. The browser then takes the service for the page's server and lets the page
read everything. It still sends the page's name as ``Host``, so a request with a name that is not ours is rejected. An
IP address cannot be rebound, so load balancers, ramdisks and BMCs that call by address need no configuration. Neither
do clients without ``Host``, which are not browsers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import falcon
import structlog

from ferroscope.api.errors import ApiError, BadRequestError, MissingError
from ferroscope.api.http import versions
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.config.options import Settings
from ferroscope.http_server.agreed import HEADER, SOURCE
from ferroscope.http_server.limits import TrustedProxies
from ferroscope_client.core.values import parse_ip

SAFE: Final = ("GET", "HEAD", "OPTIONS")
_STANDARD_HEADER: Final = "X-Openstack-Request-Id"
_GLOBAL_ID: Final = "HTTP_X_OPENSTACK_REQUEST_ID"
_GLOBAL_ID_FORM: Final = re.compile(r"req-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
# The key of a request's ID in its WSGI environment.
REQUEST_ID: Final = "ferroscope.request_id"
# BMCs read images, and some BMCs do not send the header Host.
_MEDIA: Final = "/v1/media/"
# Callers of old microversions may add this suffix to a path. Source: the version history, 1.91.
SUFFIX: Final = ".json"
_SUFFIX_UNTIL_MINOR: Final = 91
# In the environ of a request whose path had the suffix.
SUFFIX_REMOVED: Final = "ferroscope.json_suffix"
# Leases are not part of the Bare Metal API, and their names may end like that.
_KEEPS_SUFFIX: Final = ("/v1/leases/", "/v1/lease_names/", "/v1/introspection")
# The header is copied into every link. Host names with an underscore exist, against the RFCs. HTTP/1.0 has no Host
# header.
_HEADER: Final = re.compile(
    r"(?:([A-Za-z0-9._-]{1,253})|\[([0-9A-Fa-f:.]{2,45}(?:%25[A-Za-z0-9._-]{1,64})?)\])?(?::[0-9]{0,5})?"
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
        host_names = {name.lower().rstrip(".") for name in names}
        self._any = _ANY in host_names
        self._names = frozenset(host_names)
        self._suffixes = tuple(name for name in host_names if name.startswith("."))

    def check(self, header: str) -> None:
        """Raise ``BadRequestError`` if the header is invalid, ``MisdirectedError`` if the name is not ours."""
        parts = _HEADER.fullmatch(header)
        if parts is None:
            raise BadRequestError("Invalid Host header: expected HOST[:PORT].")
        name = (parts[2] or (parts[1] or "").rstrip(".")).lower().replace("%25", "%")
        if self._any or not name or name in self._names or parse_ip(name) is not None or name.endswith(self._suffixes):
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


class Arrivals:
    """Falcon middleware: what every request passes before its route. ``resources``: what may lack ``/v1``.

    The ``bookmark`` links of the Bare Metal API are paths without ``/v1``.
    """

    def __init__(
        self, new_uuid: Callable[[], str], hosts: Hosts, proxies: TrustedProxies, resources: Collection[str]
    ) -> None:
        self._new_uuid, self._hosts, self._proxies, self._resources = new_uuid, hosts, proxies, resources

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Give the request an ID and its source, refuse other hosts and empty identifiers, and normalize the path."""
        environ = req.env
        environ[REQUEST_ID] = ident = f"req-{self._new_uuid()}"
        if SOURCE not in environ:  # another server than ours
            environ[SOURCE] = self._proxies.source(environ)
        structlog.contextvars.clear_contextvars()  # of the thread's previous call
        global_id = environ.get(_GLOBAL_ID)
        if global_id is not None and _GLOBAL_ID_FORM.fullmatch(global_id):
            structlog.contextvars.bind_contextvars(request_id=ident, global_request_id=global_id)
        else:
            structlog.contextvars.bind_contextvars(request_id=ident)
        host = environ.get("HTTP_HOST", "")
        if not host and environ.get("SERVER_PROTOCOL") == "HTTP/1.1" and not req.path.startswith(_MEDIA):
            raise BadRequestError("The Host header is missing or empty; HTTP/1.1 requires it (RFC 9112, section 3.2).")
        self._hosts.check(host)
        path = environ["PATH_INFO"]
        # Requests of some clients end with a slash. No client does so with DELETE, unless its identifier is empty.
        if req.method == "DELETE" and path.endswith("/") and path != "/":
            raise MissingError(f"{req.path[:200]}/ does not exist: the identifier after the slash is empty.")
        if req.path.partition("/")[2].partition("/")[0] in self._resources:
            req.path = f"/v1{req.path}"
        if req.path.endswith(SUFFIX) and req.path.startswith("/v1/") and not req.path.startswith(_KEEPS_SUFFIX):
            _remove_suffix(req)

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: object, _ok: bool) -> None:
        ident = req.env[REQUEST_ID]
        resp.set_header(HEADER, ident)
        resp.set_header(_STANDARD_HEADER, ident)
        structlog.contextvars.clear_contextvars()


def _remove_suffix(req: falcon.Request) -> None:
    own = req.env.get(BARE_METAL.environ_key)
    if own is None:
        return
    try:
        minor = versions.requested_version(req.env.get(versions.STANDARD), own, BARE_METAL)[1]
    except ApiError:  # ``read_version`` reports it
        return
    if minor < _SUFFIX_UNTIL_MINOR:
        req.env[SUFFIX_REMOVED] = True
        req.path = req.path.removesuffix(SUFFIX)
