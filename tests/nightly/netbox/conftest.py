"""A real NetBox instead of Nautobot; it needs Python 3.12."""

from __future__ import annotations

import pytest

from tests.nightly.dcim.conftest import dcim, listener, real, service, shell
from tests.support.dcim import DcimServer
from tests.support.netbox import NetBox

__all__ = ["dcim", "listener", "real", "service", "shell"]


@pytest.fixture(scope="session")
def kind() -> type[DcimServer]:
    return NetBox
