"""Fixtures for the tests of the failed-node controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ferroscope.failover.client import Kubernetes
from tests.fast.failover.site import Site
from tests.fast.failover.test_client import api as api
from tests.fast.failover.test_client import kube as kube
from tests.fast.failover.test_client import settings as settings
from tests.support.faulty_kubernetes import FaultyKubernetes


@pytest.fixture
def site(api: FaultyKubernetes, kube: Kubernetes) -> Iterator[Site]:
    found = Site(api, kube)
    yield found
    for task in found.tasks:
        task.close()
