"""The steps of a call, each alone, and which of them a route needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import falcon
import falcon.testing
import pytest

from ferroscope.api.auth.policy import NoPolicy
from ferroscope.api.errors import ForbiddenError, MissingError, NotAcceptableError
from ferroscope.api.http import dispatch
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.dispatch import Exchange, Step, run_steps, steps_of
from ferroscope.api.http.route import Reply, Route
from ferroscope.api.rate_limit import Callers
from ferroscope.api.routes import ROUTES
from ferroscope.config.options import ApiSettings, Settings
from ferroscope.http_server.agreed import HEAD_ONLY
from tests.support.rows import each

_ALWAYS = ["read_version", "refuse_cross_site", "invite_body", "read_call", "apply_conditions"]


def make_context(*, limited: bool = False, traced: bool = False, authenticates: bool = False, **api: Any) -> ApiContext:
    """Return as much of a context as the steps need."""
    authentication = SimpleNamespace(is_disabled=not authenticates)
    access = SimpleNamespace(
        authentication=authentication,
        policy=NoPolicy(),
        admission=SimpleNamespace(limited=limited),
        audit=None,
        callers=Callers(),
    )
    process = SimpleNamespace(meter=SimpleNamespace(tracer=object() if traced else None))
    settings, services = Settings(api=ApiSettings(**api)), SimpleNamespace(attached=object())
    context = SimpleNamespace(settings=settings, access=access, process=process, services=services)
    return cast("ApiContext", context)


def find_route(endpoint: str) -> Route:
    return next(route for route in ROUTES if route.endpoint == endpoint)


def make_exchange(
    endpoint: str = "PUT /v1/nodes/{node}/states/provision", *, on: ApiContext | None = None, **headers: str
) -> Exchange:
    route = find_route(endpoint)
    environ = falcon.testing.create_environ(route.path, method=route.method, headers={"User-Agent": "test", **headers})
    return Exchange(on or make_context(), route, falcon.Request(environ), {"node": "node-1"})


@pytest.mark.parametrize(
    ("endpoint", "options", "more"),
    [
        ("GET /v1/nodes", {}, set()),
        ("GET /v1/nodes", {"authenticates": True, "limited": True}, {"authorize", "limit_caller"}),
        ("GET /v1/nodes", {"traced": True}, {"begin_trace"}),
        ("PATCH /v1/nodes/{node}", {}, {"restore_suffix", "protect_attached", "begin_change"}),
        ("PUT /v1/nodes/{node}/states/provision", {}, {"restore_suffix", "begin_change"}),
        ("POST /v1/continue_inspection", {"limited": True}, {"require_ramdisk_endpoints", "limit_failures"}),
        ("GET /v1/allocations", {}, {"require_version"}),
    ],
)
def test_a_route_has_the_steps_that_it_needs(endpoint: str, options: dict[str, bool], more: set[str]) -> None:
    steps = [step.__name__ for step in steps_of(make_context(**options), find_route(endpoint))]
    assert set(steps) == {*_ALWAYS, *more}
    assert steps.index("refuse_cross_site") < steps.index("invite_body") < steps.index("read_call")
    if "authorize" in steps:
        assert steps.index("authorize") < steps.index("invite_body")


@each(
    ("headers", "refused"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, True),
        ({"Origin": "https://page.example"}, True),
    ],
)
def test_a_change_that_a_web_page_asks_for_is_refused(headers: dict[str, str], *, refused: bool) -> None:
    exchange = make_exchange(**headers)
    if refused:
        with pytest.raises(ForbiddenError):
            dispatch.refuse_cross_site(exchange)
    else:
        dispatch.refuse_cross_site(exchange)


def test_a_version_without_the_route_is_refused() -> None:
    exchange = make_exchange("GET /v1/allocations", **{"X-OpenStack-Ironic-API-Version": "1.51"})
    dispatch.read_version(exchange)
    with pytest.raises(MissingError, match=r"1\.52 or newer; the request uses 1\.51"):
        dispatch.require_version(exchange)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(NotAcceptableError):
        dispatch.read_version(make_exchange(**{"X-OpenStack-Ironic-API-Version": "1.999"}))


@each("enabled", [True, False])
def test_the_calls_of_ramdisks_can_be_disabled(*, enabled: bool) -> None:
    context = make_context(enable_ramdisk_endpoints=enabled)
    exchange = make_exchange("POST /v1/continue_inspection", on=context)
    if enabled:
        dispatch.require_ramdisk_endpoints(exchange)
    else:
        with pytest.raises(ForbiddenError, match="enable_ramdisk_endpoints"):
            dispatch.require_ramdisk_endpoints(exchange)


def test_the_first_step_that_answers_is_the_last() -> None:
    def fail(_: Exchange) -> None:
        pytest.fail("a step ran after the answer")

    ended: list[str] = []
    exchange = make_exchange()
    exchange.req.env[HEAD_ONLY] = True
    exchange.cleanup.callback(ended.append, "cleanup")
    steps: list[Step] = [dispatch.read_version, dispatch.invite_body, fail]
    assert run_steps(exchange, steps) == Reply(100)
    assert ended == ["cleanup"]
