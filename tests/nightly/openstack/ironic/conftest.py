"""One Ironic, and one Ferroscope to which it is attached, for most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly.openstack.ironic.place import Place
from tests.support.bare_metal import Ironic
from tests.support.bare_metal import ironic as run_ironic


@pytest.fixture(scope="package")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with run_ironic(tmp_path_factory.mktemp("ironic")) as running:
        yield running


@pytest.fixture(scope="package")
def place(ironic: Ironic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("attached"), ironic) as running:
        yield running
