"""The version documents of both APIs, the health check, and the metrics.

``/`` and ``/v1`` exist in both APIs, so the port on which a request arrives determines the document. Source: what
keystoneauth's discovery, ironic-python-agent and the clients read.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.api.errors import MissingError, UnavailableError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, own, pair
from ferroscope.api.http.versions import BARE_METAL, INTROSPECTION, text
from ferroscope.contracts.errors import StoreUnavailableError


class ApiVersion(msgspec.Struct, frozen=True):
    """A major version of the Bare Metal API; ``version`` is its newest microversion."""

    id: str
    links: list[ApiLink]
    status: str
    min_version: str
    version: str


class BareMetalRoot(msgspec.Struct, frozen=True):
    """GET / on the Bare Metal API's listener."""

    name: str
    description: str
    default_version: ApiVersion
    versions: list[ApiVersion]


class MediaTypes(msgspec.Struct, frozen=True):
    """The media types of the API."""

    base: str
    type: str


class BareMetalV1(msgspec.Struct, frozen=True, omit_defaults=True):
    """GET /v1: links to the resources that the microversion supports."""

    id: str
    links: list[ApiLink]
    media_types: MediaTypes
    version: ApiVersion
    nodes: list[ApiLink]
    ports: list[ApiLink]
    drivers: list[ApiLink]
    chassis: list[ApiLink]
    portgroups: list[ApiLink] | None = None
    conductors: list[ApiLink] | None = None
    shards: list[ApiLink] | None = None
    lookup: list[ApiLink] | None = None
    heartbeat: list[ApiLink] | None = None
    continue_inspection: list[ApiLink] | None = None
    inspection_rules: list[ApiLink] | None = None


class IntrospectionVersion(msgspec.Struct, frozen=True):
    """A version of the Introspection API."""

    status: str
    id: str
    links: list[ApiLink]


class IntrospectionRoot(msgspec.Struct, frozen=True):
    """GET / on the Introspection API's listener."""

    versions: list[IntrospectionVersion]


class Resource(msgspec.Struct, frozen=True):
    """A resource of the Introspection API."""

    name: str
    links: list[ApiLink]


class IntrospectionV1(msgspec.Struct, frozen=True):
    """GET /v1 on the Introspection API's listener."""

    resources: list[Resource]


_RAMDISK_SINCE: Final = 22
_PORTGROUPS_SINCE: Final = 23
_CONDUCTORS_SINCE: Final = 49
_SHARDS_SINCE: Final = 82
_CALLBACK_SINCE: Final = 84
_RULES_SINCE: Final = 96


def get_root(_context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the versions of the API on this port."""
    if call.introspection:
        link = ApiLink(href=f"{call.url}/v1", rel="self")
        version = IntrospectionVersion(status="CURRENT", id=text(INTROSPECTION.maximum), links=[link])
        return Reply(200, IntrospectionRoot(versions=[version]))
    version_one = _version_one(call.url)
    return Reply(
        200,
        BareMetalRoot(
            name="Ferroscope Bare Metal API",
            description="Bare-metal inspection with the Bare Metal API.",
            default_version=version_one,
            versions=[version_one],
        ),
    )


def get_v1(_context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the resources of the API on this port."""
    if call.introspection:
        names = ("introspection", "continue", "rules")
        return Reply(200, IntrospectionV1(resources=[Resource(name=name, links=own(call.url, name)) for name in names]))
    return Reply(
        200,
        BareMetalV1(
            id="v1",
            links=_version_one(call.url).links,
            media_types=MediaTypes(base="application/json", type="application/vnd.openstack.ironic.v1+json"),
            version=_version_one(call.url),
            nodes=pair(call.url, "nodes"),
            ports=pair(call.url, "ports"),
            drivers=pair(call.url, "drivers"),
            chassis=pair(call.url, "chassis"),
            portgroups=pair(call.url, "portgroups") if call.minor >= _PORTGROUPS_SINCE else None,
            conductors=pair(call.url, "conductors") if call.minor >= _CONDUCTORS_SINCE else None,
            shards=pair(call.url, "shards") if call.minor >= _SHARDS_SINCE else None,
            lookup=pair(call.url, "lookup") if call.minor >= _RAMDISK_SINCE else None,
            heartbeat=pair(call.url, "heartbeat") if call.minor >= _RAMDISK_SINCE else None,
            continue_inspection=pair(call.url, "continue_inspection") if call.minor >= _CALLBACK_SINCE else None,
            inspection_rules=pair(call.url, "inspection_rules") if call.minor >= _RULES_SINCE else None,
        ),
    )


def _version_one(url: str) -> ApiVersion:
    minimum, maximum = BARE_METAL.range
    link = ApiLink(href=f"{url}/v1/", rel="self")
    return ApiVersion(id="v1", links=[link], status="CURRENT", min_version=minimum, version=maximum)


# The health check: the process is healthy if its store responds, its last heartbeat was written, and it is not about to
# stop.
#
# Before a process stops, its health check fails while it still serves requests, so that load balancers send new
# requests elsewhere before anything is closed.


class Health(msgspec.Struct, frozen=True):
    """``status`` is always ``ok``; an unhealthy process returns 503."""

    status: str


class HealthQuery(msgspec.Struct, frozen=True):
    """``write``: also fail as soon as a heartbeat or a call of this process could not be written."""

    write: bool = False


def get_healthcheck(context: ApiContext, call: RouteCall[HealthQuery, None]) -> Reply:
    """Return 200 if the database can be read and written and the process is not about to stop; else 503."""
    if context.process.draining.is_set():
        raise UnavailableError("This process is shutting down.", {"Retry-After": "1"})
    clock = context.process.clock
    if (failure := context.data.read_write_failure(clock.monotonic(), at_once=call.query.write)) is not None:
        raise StoreUnavailableError(failure.message, failure.fault)
    try:
        context.data.store.read(lambda tx: tx.members.list())
    except StoreUnavailableError:
        raise
    except Exception as exc:  # noqa: BLE001  # whatever it is, a load balancer must send requests elsewhere
        context.process.log.warning("health check failed", error=type(exc).__name__)
        raise UnavailableError("The database is unavailable.", {"Retry-After": "1"}) from None
    return Reply(200, Health(status="ok"))


# The metrics of this process and of the whole service, for Prometheus; without authentication.


def get_metrics(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """Return the metrics in Prometheus's text format."""
    if context.process.metrics is None:
        raise MissingError("Metrics are disabled ([api] enable_metrics).")
    return Reply(200, context.process.metrics())
