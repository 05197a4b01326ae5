"""Step 3 of the page, and what follows it: a site with a PostgreSQL, users, machines outside, and a new release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly.kubelet.site import Database, load_balancer, postgresql
from tests.nightly.kubelet.stranger import PASSWORD, SPACE, Stranger
from tests.support.installation import Played
from tests.support.kubernetes_node import GATEWAY, Rack
from tests.support.processes import until
from tests.support.pxe.netns import bridge
from tools.packaging.contents import VERSION

MACHINES = 12
_IMAGE = "localhost/ferroscope"
_APPLY = "kubectl apply -k deploy/kubernetes/overlays/postgresql"
# Kubernetes 1.21 and newer, which the page asks for, have Pod Disruption Budgets in policy/v1; the cluster is 1.20.
_AS_SERVED = "kubectl kustomize {} | sed 's#^apiVersion: policy/v1$#apiVersion: policy/v1beta1#' | kubectl apply -f -"
_OWN = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../postgresql]
configMapGenerator:
- {name: ferroscope, namespace: ferroscope, behavior: replace, files: [ferroscope.conf]}
"""
_TRIES_TO_WRITE = """\
import os
for place in ("/", "/etc", "/usr", "/var/lib/ferroscope"):
    try:
        open(f"{place}/written", "w")
    except OSError:
        continue
    print("written:", place)
open("/tmp/written", "w")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getuid(), os.getgid(), status["CapEff"].strip(), status["NoNewPrivs"].strip(), status["Seccomp"].strip())
"""


@pytest.fixture(scope="module")
def database(rack: Rack) -> Iterator[Database]:
    with postgresql() as database:
        yield database


@pytest.fixture
def url(rack: Rack) -> Iterator[str]:
    """Give the URL at which ramdisks and operators reach the api."""
    with load_balancer(rack.cluster, "ferroscope-api", 6385) as url:
        yield url


def _apply(stranger: Stranger, directory: str) -> str:
    return _AS_SERVED.format(f"deploy/kubernetes/{directory}")


def _secrets(stranger: Stranger, connection: str) -> None:
    (stranger.source / "database.env").write_text(f"OS_DATABASE__CONNECTION={connection}\n")
    stranger.types("ferroscope user add alice --role admin --file htpasswd", given=f"{PASSWORD}\n")
    stranger.types("kubectl apply -f deploy/kubernetes/base/namespace.yaml")
    create = f"kubectl --namespace {SPACE} create secret generic"
    stranger.types(f"{create} ferroscope-users --from-file=htpasswd")
    stranger.types(f"{create} ferroscope-database --from-env-file=database.env")


def _all_ready(stranger: Stranger) -> bool:
    return len(stranger.ready("api")) == len(stranger.ready("worker")) == 2


def _pods(stranger: Stranger) -> set[str]:
    return {*stranger.ready("api"), *stranger.ready("worker")}


def _own_overlay(stranger: Stranger, url: str) -> None:
    """Write one with the name of the load balancer, as the page says."""
    own = stranger.source / "deploy/kubernetes/overlays/own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(_OWN)
    conf = (stranger.source / "deploy/kubernetes/base/ferroscope.conf").read_text()
    assert conf.count("allowed_hosts = ") == 1
    conf = conf.replace("allowed_hosts = ", f"allowed_hosts = {GATEWAY},")
    conf += f"\n[inspector]\ncallback_endpoint_override = {url}\n\n[drivers]\nenabled = redfish,ipmi,sim\n"
    (own / "ferroscope.conf").write_text(conf)


def _name_another_release(stranger: Stranger, rack: Rack) -> None:
    """Have the nodes know the image by another tag, too, and the overlay name that."""
    for node in rack.nodes.values():
        node.run("ctr", "-n", "k8s.io", "images", "tag", f"{_IMAGE}:{VERSION}", f"{_IMAGE}:next")
    own = stranger.source / "deploy/kubernetes/overlays/own/kustomization.yaml"
    own.write_text(f"{_OWN}images:\n- {{name: {_IMAGE}, newTag: next}}\n")


def _fleet(stranger: Stranger, url: str) -> Played:
    """Start machines outside of the cluster, and enroll them as alice."""
    user = {"FERROSCOPE_USERNAME": "alice", "FERROSCOPE_PASSWORD": PASSWORD}
    stranger.environment |= {"FERROSCOPE_URL": url, "FERROSCOPE_INSECURE_HTTP": "1"} | user
    fleet = stranger.keeps(f"ferroscope sim --nodes {MACHINES} --host {GATEWAY} --api {url} --enroll")
    assert until(lambda: len(stranger.nodes()) == MACHINES or "cannot" in fleet.output()), fleet.output()
    assert fleet.alive, fleet.output()
    return fleet


def _meanwhile(stranger: Stranger, what: str, *commands: str) -> None:
    """Inspect all machines while this is done: none is lost, and nobody notices."""
    inspection = stranger.keeps("ferroscope inspect --all --wait")
    for command in commands:
        stranger.runs(command)
    assert until(lambda: not inspection.alive, seconds=240), what
    assert inspection.process.returncode == 0, f"{what}: {inspection.output()}"
    stranger.awaits(lambda: _all_ready(stranger))


def test_a_site_inspects_its_machines_while_pods_are_restarted_drained_and_upgraded(
    stranger: Stranger, rack: Rack, database: Database, url: str
) -> None:
    # Steps 1 and 2.
    _secrets(stranger, database.database())
    stranger.types(_APPLY, own=(_APPLY, _apply(stranger, "overlays/postgresql")))
    stranger.awaits(lambda: _all_ready(stranger))
    for component in ("api", "worker"):
        assert {one["spec"]["nodeName"] for one in stranger.pods(component)} == set(rack.nodes), component
        (pod, _) = stranger.ready(component)
        said = stranger.runs(f"kubectl --namespace {SPACE} exec {pod} -- python3 -c '{_TRIES_TO_WRITE}'")
        assert said.split("\n")[-2:] == ["10001 10001 0000000000000000 1 2", ""], said
    assert until(lambda: len(stranger.runs(f"kubectl --namespace {SPACE} get leases -o name").split()) == 2)

    # Step 3: the name of the load balancer.
    _own_overlay(stranger, url)
    stranger.types(f"kubectl --namespace {SPACE} delete job ferroscope-db-upgrade --ignore-not-found")
    before = _pods(stranger)
    stranger.runs(_apply(stranger, "overlays/own"))
    stranger.awaits(lambda: _all_ready(stranger) and not before & _pods(stranger))
    _fleet(stranger, url)
    stranger.runs("ferroscope inspect --all --wait")
    assert len(stranger.inspected()) == MACHINES
    code, said = stranger.tries("FERROSCOPE_PASSWORD=wrong ferroscope node list")
    assert code != 0, said

    # What the page says of upgrades and drains.
    restart = [f"kubectl --namespace {SPACE} rollout restart deployment/ferroscope-{one}" for one in ("api", "worker")]
    wait = [f"kubectl --namespace {SPACE} rollout status deployment/ferroscope-{one}" for one in ("api", "worker")]
    _meanwhile(stranger, "restart", *restart, *wait)
    drain = "kubectl drain node-2 --ignore-daemonsets --delete-emptydir-data --timeout 240s"
    _meanwhile(stranger, "drain", drain, "kubectl uncordon node-2")
    delete = f"kubectl --namespace {SPACE} delete job ferroscope-db-upgrade --ignore-not-found"
    _name_another_release(stranger, rack)
    _meanwhile(stranger, "upgrade", delete, _apply(stranger, "overlays/own"), *wait)
    images = {one["spec"]["containers"][0]["image"] for one in (*stranger.pods("api"), *stranger.pods("worker"))}
    assert images == {f"{_IMAGE}:next"}
    stranger.runs("ferroscope status")

    _failed_nodes(stranger)
    _boot_host(stranger, rack)


def _failed_nodes(stranger: Stranger) -> None:
    """The controller of failed nodes runs on both nodes, and one of its pods leads."""
    stranger.runs(_apply(stranger, "failover"))
    stranger.awaits(lambda: len(stranger.ready("failover")) == 2)
    assert len({one["spec"]["nodeName"] for one in stranger.pods("failover")}) == 2


def _boot_host(stranger: Stranger, rack: Rack) -> None:
    """The PXE filter runs on the labelled node, and its set is in the kernel until the pod ends."""
    bridge(rack.network, "eth1")
    space = "ferroscope-boot"
    stranger.types("kubectl label node NODE ferroscope.io/boot-host=true", own=("NODE", "node-1"))
    stranger.types("kubectl apply -k deploy/kubernetes/pxe-filter")
    stranger.types(
        f"kubectl --namespace {space} create secret generic ferroscope-database --from-env-file=database.env"
    )
    stranger.awaits(lambda: len(stranger.ready("pxe-filter", space)) == 1, space)
    assert [one["spec"]["nodeName"] for one in stranger.pods("pxe-filter", space)] == ["node-1"]
    assert until(lambda: _is_open(rack))
    stranger.runs("kubectl delete -k deploy/kubernetes/pxe-filter")
    assert until(lambda: not _is_open(rack))


def _is_open(rack: Rack) -> bool:
    return "expires" in rack.network.run("nft", "list", "set", "inet", "ferroscope_pxe_default", "open").stdout
