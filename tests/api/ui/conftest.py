"""A service with users of each role, and a browser in which one of them has logged in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.browsing import IDENTITIES, Browser
from tests.api.callers import service_for
from tests.api.service import Service


@pytest.fixture
def service(sqlite_url: str) -> Iterator[Service]:
    served = service_for(sqlite_url, IDENTITIES)
    yield served
    served.close()


@pytest.fixture
def root(service: Service) -> Browser:
    return Browser(service).log_in("root")
