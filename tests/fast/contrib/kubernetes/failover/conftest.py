"""Fixtures for the tests of the failed-node controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ferroscope.contrib.kubernetes.failover.client import Kubernetes
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import api as api
from tests.fast.contrib.kubernetes.failover.test_client import kube as kube
from tests.fast.contrib.kubernetes.failover.test_client import settings as settings
from tests.support.faulty_kubernetes import FaultyKubernetes


@pytest.fixture
def site(api: FaultyKubernetes, kube: Kubernetes) -> Iterator[Site]:
    found = Site(api, kube)
    yield found
    for task in found.tasks:
        task.close()
