"""The page's section on Helm, with the chart of the release: pods become ready, are changed, and are gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.fast.docs.pages import page
from tests.nightly.kubelet.site import postgresql
from tests.nightly.kubelet.stranger import PAGE, PASSWORD, SPACE, Stranger
from tests.support.kubernetes_node import Rack
from tests.support.processes import until
from tests.support.pxe.netns import bridge

_INSTALL = (
    "helm install ferroscope deploy/helm/ferroscope --namespace ferroscope "
    "--set image.repository=registry.example.org/ferroscope"
)


@pytest.fixture
def connection(rack: Rack) -> Iterator[str]:
    with postgresql() as database:
        yield database.database()


def _values() -> str:
    """Return the values that the page shows, but for what this cluster lacks: its registry, and Prometheus."""
    (shown,) = (one.text for one in page(PAGE).blocks if one.text.startswith("image:\n"))
    values = yaml.safe_load(shown)
    for of_operator in ("monitors", "prometheusRule"):
        assert values.pop(of_operator)["enabled"] is True
    values["image"]["repository"] = "localhost/ferroscope"
    return yaml.safe_dump(values)


def _ready(stranger: Stranger, **wanted: int) -> bool:
    return all(len(stranger.ready(role)) == len(stranger.pods(role)) == count for role, count in wanted.items())


def test_it_is_installed_upgraded_rolled_back_and_uninstalled(stranger: Stranger, rack: Rack, connection: str) -> None:
    (stranger.source / "database.env").write_text(f"OS_DATABASE__CONNECTION={connection}\n")
    stranger.types("ferroscope user add alice --role admin --file htpasswd", given=f"{PASSWORD}\n")
    stranger.types("kubectl apply -f deploy/kubernetes/base/namespace.yaml")
    for name, given in (("users", "file=htpasswd"), ("database", "env-file=database.env")):
        stranger.types(f"kubectl --namespace {SPACE} create secret generic ferroscope-{name} --from-{given}")

    chart = f"{stranger.chart} --namespace {SPACE}"
    install = f"helm install ferroscope {chart} --set image.repository=localhost/ferroscope"
    assert "STATUS: deployed" in stranger.types(_INSTALL, own=(_INSTALL, install))
    stranger.awaits(lambda: _ready(stranger, api=2, worker=2))

    # As the notes of the installation say.
    user = f"FERROSCOPE_USERNAME=alice FERROSCOPE_PASSWORD={PASSWORD}"
    forward = f"kubectl --namespace {SPACE} port-forward deployment/ferroscope 6385"
    with stranger.forwarded(forward, place="service/ferroscope-api"):
        stranger.runs(f"{user} ferroscope --url http://127.0.0.1:6385 status")

    # More of everything: apis, the failed-node controller, and the PXE filter.
    bridge(rack.network, "eth1")
    stranger.runs("kubectl label node node-1 ferroscope.io/boot-host=true")
    (stranger.source / "values.yaml").write_text(_values())
    stranger.runs(f"helm upgrade ferroscope {chart} --values values.yaml")
    boot = "ferroscope-boot"
    stranger.runs(f"kubectl --namespace {boot} create secret generic ferroscope-database --from-env-file=database.env")
    stranger.awaits(lambda: _ready(stranger, api=3, worker=2, failover=2))
    stranger.awaits(lambda: len(stranger.ready("pxe-filter", boot)) == 1, boot)

    stranger.runs(f"helm rollback ferroscope --namespace {SPACE}")
    stranger.awaits(lambda: _ready(stranger, api=2, worker=2) and not stranger.pods("failover"))
    status = f"{user} ferroscope --url http://127.0.0.1:6385 status"
    with stranger.forwarded(forward, place="service/ferroscope-api"):
        assert until(lambda: stranger.tries(status)[0] == 0), stranger.tries(status)[1]

    stranger.runs(f"helm uninstall ferroscope --namespace {SPACE}")
    assert until(lambda: not rack.cluster.pods(SPACE))
    assert "ferroscope-database" in stranger.runs(f"kubectl --namespace {SPACE} get secrets -o name")
