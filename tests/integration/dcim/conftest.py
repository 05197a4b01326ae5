"""The real servers, once for all tests, and the service of which a sync reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cli.conftest import listener, service, shell
from tests.support.dcim import DcimServer, Synced, running
from tests.support.nautobot import Nautobot
from tests.support.netbox import NetBox
from tests.support.servers import Server

__all__ = ["listener", "service", "shell"]


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(Nautobot, marks=pytest.mark.nautobot, id="nautobot"),
        pytest.param(NetBox, marks=pytest.mark.netbox, id="netbox"),
    ],
)
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_postgresql: Server
) -> Iterator[DcimServer]:
    kind = request.param
    with running(kind, tmp_path_factory.mktemp(kind.name), shared_postgresql) as made:
        yield made


@pytest.fixture
def dcim(real: DcimServer) -> Synced:
    return Synced(real)
