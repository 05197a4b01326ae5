"""Fixtures for the tests of the failed-node controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ferroscope.contrib.kubernetes.failover.client import Kubernetes
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document
from tests.support.faulty_kubernetes import Direct, FaultyKubernetes
from tests.support.processes import PATIENCE


@pytest.fixture
def api() -> FaultyKubernetes:
    """Give a server that is asked directly; ``test_client`` has one that is asked over HTTP."""
    found = FaultyKubernetes()
    found.put("nodes", node_document("n1"))
    return found


@pytest.fixture
def kube(api: FaultyKubernetes) -> Kubernetes:
    return Kubernetes(Direct(api), timeout=PATIENCE)


@pytest.fixture
def site(api: FaultyKubernetes, kube: Kubernetes) -> Iterator[Site]:
    found = Site(api, kube)
    yield found
    for task in found.tasks:
        task.close()
