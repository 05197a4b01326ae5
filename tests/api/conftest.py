"""A service of its own for every test, on SQLite; on each of the databases where a test wants that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ferroscope.api.http import recent
from ferroscope.api.service import shared_macs
from tests.api.service import Client, Service


@pytest.fixture
def service(sqlite_url: str) -> Iterator[Service]:
    """Give a service on a new SQLite database."""
    served = Service(sqlite_url)
    yield served
    served.close()


@pytest.fixture
def everywhere(database_url: str) -> Iterator[Service]:
    """Give a service on a new database, on SQLite, PostgreSQL and MariaDB in turn."""
    served = Service(database_url)
    yield served
    served.close()


@pytest.fixture
def with_drivers(database_url: str) -> Iterator[Callable[..., Service]]:
    """Return a function that starts the service with other drivers."""
    made: list[Service] = []

    def start(**drivers: Any) -> Service:
        made.append(Service(database_url, drivers=drivers))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(params=[None, "1.84"], ids=["without-token", "with-token"])
def callback_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with both versions of the callback: with a token in the response, and without."""
    monkeypatch.setattr(Service, "callback_version", request.param)


@pytest.fixture
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each call find out anew what another one may have found out a moment ago, however busy this machine is."""
    monkeypatch.setattr(recent, "_SHARE", math.inf)
    monkeypatch.setattr(shared_macs, "KEPT", 0.0)


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
