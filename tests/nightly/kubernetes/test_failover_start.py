"""``ferroscope failover`` and a real API server that it cannot use, or not fully: it says so when it starts."""

from __future__ import annotations

import time

import pytest

from ferroscope.config.errors import SetupError
from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.api import Right
from ferroscope.contrib.kubernetes.failover.client import FORCING_RIGHTS, RIGHTS
from ferroscope.contrib.kubernetes.failover.reading import TAINT_SINCE
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_programs import release

_ALL = (*RIGHTS, *FORCING_RIGHTS, Right("create", "", "pods/eviction"))


@pytest.mark.parametrize("missing", _ALL, ids=lambda right: f"{right.verb}-{right.resource.replace('/', '-')}")
def test_a_missing_right_is_named_with_the_rule_that_grants_it(api_server: Cluster, missing: Right) -> None:
    name = f"failover-without-{missing.verb}-{missing.resource.replace('/', '-')}"
    rules = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in _ALL if one != missing
    ]
    token = api_server.account(name, rules, everywhere=True)
    file = api_server.write_kubeconfig(f"{name}.kubeconfig", token)
    wanted = FailoverSettings(kubeconfig=str(file), mode="label")
    kube = role.connect(wanted)
    try:
        with pytest.raises(SetupError) as said:
            role.check_cluster(kube, wanted)
    finally:
        kube.close()
    assert f"{missing.verb} {missing.resource}" in said.value.summary
    assert said.value.advice.count("apiGroups") == 1
    assert missing.rule in said.value.advice


@pytest.mark.parametrize("off", [0.0, 120.0, -120.0])
def test_an_old_server_and_a_clock_that_is_off_are_reported(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    wanted = FailoverSettings(kubeconfig=str(api_server.kubeconfig))
    kube, true = role.connect(wanted), time.time
    monkeypatch.setattr("ferroscope.contrib.kubernetes.api.time.time", lambda: true() - off)
    try:
        said = role.check_cluster(kube, wanted)
    finally:
        kube.close()
    assert kube.skew() == pytest.approx(off, abs=10)
    assert len(said) == (release() < TAINT_SINCE) + (off != 0.0)
