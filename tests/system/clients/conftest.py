"""One installation on SQLite for most tests; each takes machines of its own from its fleet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import databases
from tests.system.clients.environment import Clients
from tests.system.clients.site import Site
from tests.system.clients.site import site as run_site


@pytest.fixture(scope="package")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Give the published clients; an error where they are not installed."""
    running = Clients(tmp_path_factory.mktemp("clients"))
    yield running
    running.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory, clients: Clients) -> Iterator[Site]:
    """Give the installation that the tests share."""
    directory = tmp_path_factory.mktemp("site")
    with run_site(directory, databases.sqlite(directory), clients) as place:
        yield place
