"""Every route answers what the OpenAPI document says: sixty generated calls a route, with and without a login."""

from __future__ import annotations

import pytest
from schemathesis import GenerationMode

from ferroscope.api.routes import ROUTES, Route
from tests.api.test_openapi import CREDENTIALS, Seeded, check, seeded

__all__ = ["seeded"]

EXAMPLES = 60
_NAMES = [route.operation for route in ROUTES]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
@pytest.mark.parametrize("route", ROUTES, ids=_NAMES)
def test_route_answers_as_documented(seeded: Seeded, route: Route, mode: GenerationMode) -> None:
    check(seeded, route, mode, EXAMPLES, ())


@pytest.mark.parametrize("route", ROUTES, ids=_NAMES)
def test_route_answers_as_documented_where_a_login_is_required(seeded: Seeded, route: Route) -> None:
    check(seeded, route, GenerationMode.POSITIVE, EXAMPLES, CREDENTIALS)
