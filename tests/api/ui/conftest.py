"""A service with users of each role, and a browser in which one of them has logged in."""

from __future__ import annotations

import pytest

from tests.api.browsing import IDENTITIES, Browser
from tests.api.callers import service_for
from tests.api.service import Service


@pytest.fixture
def service(sqlite_url: str) -> Service:
    return service_for(sqlite_url, IDENTITIES)


@pytest.fixture
def root(service: Service) -> Browser:
    return Browser(service).log_in("root")
