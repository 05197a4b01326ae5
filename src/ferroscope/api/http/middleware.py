"""What every request passes before its route: its ID, its path, the name of its host, and whether a web page sent it.

*IDs*: one for each call, in its response and in each of its log lines. A caller may send its own ID in
``X-Openstack-Request-Id``, to find its calls in the logs of several services. It only goes into our log, as
``global_request_id``: a caller must not choose the ID by which we tell calls apart.
Source: the OpenStack API guidelines on request IDs, oslo.middleware.

*The suffix* ``.json``: callers of old microversions may add it. Source: the version history, 1.91.

*Hosts*: the names by which this service may be called, a protection against DNS rebinding. A web page can let its own
name resolve to the address of this service; the browser then takes the service for the page's server and lets the page
read everything. The browser still sends the page's name as ``Host``, so a request with a name that is not ours is
rejected. An IP address cannot be rebound, so load balancers, ramdisks and BMCs that call by address need no
configuration; nor do clients without ``Host``, which are not browsers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import falcon
import structlog

from ferroscope.api.errors import ApiError, BadRequestError, ForbiddenError, MissingError
from ferroscope.api.http import versions
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.config.options import Settings
from ferroscope.http_server.agreed import HEADER
from ferroscope.http_server.sources import parse

_STANDARD_HEADER: Final = "X-Openstack-Request-Id"
_GIVEN: Final = "HTTP_X_OPENSTACK_REQUEST_ID"
_KEY: Final = "ferroscope.request_id"
# Which API a web server serves here, bare-metal or introspection, if its port does not tell; no header has this name.
API: Final = "FERROSCOPE_API"
_FORM: Final = re.compile(r"req-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def of(env: Mapping[str, Any]) -> str:
    """Return the ID of the request with this environ."""
    return str(env.get(_KEY, ""))


class RequestIds:
    """Falcon middleware; it comes first, so that the responses of the others have an ID too."""

    def __init__(self, new_uuid: Callable[[], str]) -> None:
        self._new_uuid = new_uuid

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        env = req.env
        env[_KEY] = ident = f"req-{self._new_uuid()}"
        structlog.contextvars.clear_contextvars()  # of the thread's previous call
        global_id = env.get(_GIVEN)
        if global_id is not None and _FORM.fullmatch(global_id):
            structlog.contextvars.bind_contextvars(request_id=ident, global_request_id=global_id)
        else:
            structlog.contextvars.bind_contextvars(request_id=ident)

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: object, _ok: bool) -> None:
        resp.set_header(HEADER, of(req.env))
        resp.set_header(_STANDARD_HEADER, of(req.env))
        structlog.contextvars.clear_contextvars()


class NonEmptyIdentifier:
    """Rejects a DELETE whose path ends with a slash: the client's identifier is probably empty.

    Other requests may end with a slash, as those of some clients do; no known client does so with DELETE.
    """

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        path = req.env["PATH_INFO"]
        if req.method == "DELETE" and path.endswith("/") and path != "/":
            raise MissingError(f"{req.path[:200]}/ does not exist: the identifier after the slash is empty.")


class Unversioned:
    """Serves the Bare Metal API's paths without ``/v1`` too: its ``bookmark`` links are such paths."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        if req.path.partition("/")[2].partition("/")[0] in self._names:
            req.path = f"/v1{req.path}"


SUFFIX: Final = ".json"
_UNTIL_MINOR: Final = 91
# In the environ of a request whose path had the suffix.
REMOVED: Final = "ferroscope.json_suffix"
# Leases are not part of the Bare Metal API, and their names may end like that.
_EXEMPT: Final = ("/v1/leases/", "/v1/lease_names/", "/v1/introspection")


class JsonSuffix:
    """Falcon middleware that removes the suffix."""

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        if not req.path.endswith(SUFFIX) or not req.path.startswith("/v1/") or req.path.startswith(_EXEMPT):
            return
        if BARE_METAL.environ_key not in req.env:  # as there
            return
        try:
            own = req.env[BARE_METAL.environ_key]
            minor = versions.requested_version(req.env.get(versions.STANDARD), own, BARE_METAL)[1]
        except ApiError:  # the responder reports it
            return
        if minor < _UNTIL_MINOR:
            req.env[REMOVED] = True
            req.path = req.path.removesuffix(SUFFIX)


# The header is copied into every link. Host names with an underscore exist, whatever the RFCs say. HTTP/1.0 has no Host
# header.
_HEADER: Final = re.compile(
    r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}(?:%25[A-Za-z0-9._-]{1,64})?\])?(?::[0-9]{0,5})?"
)
_ANY: Final = "*"
_LOOPBACK: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
# Images are read by BMCs, of which some do not send the header.
_MEDIA: Final = "/v1/media/"
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
        if _HEADER.fullmatch(header) is None:
            raise BadRequestError("Invalid Host header: expected HOST[:PORT].")
        name = _name(header)
        if self._any or not name or name in self._names or parse(name) is not None or name.endswith(self._suffixes):
            return
        raise MisdirectedError(
            f'"{name}" is not a name of this service; use its IP address, or add the name to [api] '
            "allowed_hosts or public_url."
        )


class OwnHost:
    """Rejects a request for a host name that is not ours, before anything else looks at it."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        env = req.env
        if not env.get("HTTP_HOST") and env.get("SERVER_PROTOCOL") == "HTTP/1.1" and not req.path.startswith(_MEDIA):
            raise BadRequestError("The Host header is missing or empty; HTTP/1.1 requires it (RFC 9112, section 3.2).")
        self._hosts.check(env.get("HTTP_HOST", ""))


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


# Protection against cross-site request forgery: without authentication, or with credentials that the browser has
# stored, any web page could otherwise make an operator's browser reboot machines.
#
# Browsers say where a request comes from in headers that no page can forge, and that no client, ramdisk or BMC
# sends. Following a link to a document is allowed. Source: the Fetch standard, Fetch Metadata.

SAFE: Final = ("GET", "HEAD", "OPTIONS")
_CROSS_ORIGIN: Final = ("cross-site", "same-site")


def reject_cross_site(req: falcon.Request) -> None:
    """Raise ``ForbiddenError`` if a browser sent this request on behalf of a web page."""
    environ, safe = req.env, req.method in SAFE
    follows_link = safe and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    cross_origin = environ.get("HTTP_SEC_FETCH_SITE") in _CROSS_ORIGIN and not follows_link
    if cross_origin or (not safe and "HTTP_ORIGIN" in environ):
        raise ForbiddenError("Cross-site requests from web pages are not allowed (Origin, Sec-Fetch-Site).")
