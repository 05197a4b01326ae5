"""The real servers, once for all tests, and the service of which a sync reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.dcim import DcimServer, Synced, running
from tests.support.nautobot import Nautobot
from tests.support.servers import Server
from tests.system.cli.conftest import listener, service, shell

__all__ = ["listener", "service", "shell"]


@pytest.fixture(scope="session")
def kind() -> type[DcimServer]:
    return Nautobot


@pytest.fixture(scope="session")
def real(
    kind: type[DcimServer], tmp_path_factory: pytest.TempPathFactory, shared_postgresql: Server
) -> Iterator[DcimServer]:
    with running(kind, tmp_path_factory.mktemp(kind.name), shared_postgresql) as made:
        yield made


@pytest.fixture
def dcim(real: DcimServer) -> Synced:
    return Synced(real)
