"""A service of its own for every test, on SQLite; on each of the databases where a test wants that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from ferroscope.api.http import recent
from ferroscope.api.service import shared_macs
from tests.api.service import OPENED, Client, Service


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """Close the services that the test has opened."""
    number = len(OPENED)
    yield
    while len(OPENED) > number:
        OPENED[-1].close()


@pytest.fixture
def service(sqlite_url: str) -> Service:
    """Return a service on a new SQLite database."""
    return Service(sqlite_url)


@pytest.fixture
def everywhere(database_url: str) -> Service:
    """Return a service on a new database, on SQLite and PostgreSQL in turn, or as ``--databases`` says."""
    return Service(database_url)


@pytest.fixture
def with_drivers(sqlite_url: str) -> Callable[..., Service]:
    """Return a function that starts the service with other drivers."""
    return lambda **drivers: Service(sqlite_url, drivers=drivers)


@pytest.fixture(params=[None, "1.84"], ids=["without-token", "with-token"])
def callback_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with both versions of the callback: with a token in the response, and without."""
    monkeypatch.setattr(Service, "callback_version", request.param)


@pytest.fixture
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each call find out anew what another one may have found out a moment ago, however busy this machine is."""
    monkeypatch.setattr(recent, "_MAX_TIME_SHARE", math.inf)
    monkeypatch.setattr(shared_macs, "CACHE_SECONDS", 0.0)


@pytest.fixture
def bare_metal(service: Service) -> Client:
    return service.bare_metal


@pytest.fixture
def introspection(service: Service) -> Client:
    return service.introspection


@pytest.fixture
def waiting(service: Service) -> tuple[str, str]:
    """Return a node that waits for its ramdisk, and the MAC of its port."""
    ident = service.enrol(name="waiting")
    return ident, service.wait(ident)
