"""The tests of coordination services, with Lease objects of Kubernetes as the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly.buses.test_coordination import (
    test_leaders_are_replaced_early_and_an_outage_of_the_service_is_survived_and_reported,
)
from tests.support.kubernetes import Cluster

__all__ = ["test_leaders_are_replaced_early_and_an_outage_of_the_service_is_survived_and_reported"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Cluster]:
    """Give an API server that may be harmed, instead of etcd and the others."""
    directory = tmp_path / "kubernetes"
    directory.mkdir()
    with Cluster(directory) as cluster:
        yield cluster


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of one installation."""
    directory = tmp_path / "party"
    directory.mkdir()
    return directory
