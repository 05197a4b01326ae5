"""Fixtures for the tests of the failed-node controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.contrib.kubernetes.failover.client import Kubernetes
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import api as api
from tests.fast.contrib.kubernetes.failover.test_client import kube as kube
from tests.fast.contrib.kubernetes.failover.test_client import kubeconfig
from tests.support.faulty_kubernetes import FaultyKubernetes
from tests.support.processes import PATIENCE


@pytest.fixture
def settings(api: FaultyKubernetes, tmp_path: Path) -> FailoverSettings:
    """Wait for a server that answers, however busy the machine is; ``test_client`` has one that may not."""
    return FailoverSettings(kubeconfig=str(kubeconfig(api, tmp_path)), request_timeout=PATIENCE)


@pytest.fixture
def site(api: FaultyKubernetes, kube: Kubernetes) -> Iterator[Site]:
    found = Site(api, kube)
    yield found
    for task in found.tasks:
        task.close()
