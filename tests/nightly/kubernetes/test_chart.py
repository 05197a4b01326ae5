"""The Helm chart makes what kustomize makes, refuses wrong values, and gives each role what its options need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.load import ConfigurationError, load, unknown_options
from ferroscope.config.options import Settings
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.support.http_target import HttpTarget
from tests.support.manifests import CHART, Object, kustomized, pods, run, templated

EVERYTHING = {f"{part}.enabled": True for part in ("failover", "pxeFilter", "monitors", "prometheusRule")}
SITES: dict[str, tuple[Callable[[], list[Object]], tuple[str, ...]]] = {
    "site": (
        lambda: templated(EVERYTHING),
        ("overlays/postgresql", "failover", "pxe-filter", "service-monitor", "prometheus-rule"),
    ),
    "cloud": (lambda: templated({}, "--values", str(CHART.parent / "cloud-values.yaml")), ("overlays/cloud",)),
}
# Options that are refused only when the whole configuration is read: option, value, and where in it the fault is.
IMPOSSIBLE: list[tuple[str, Any, str]] = [
    ("failover.max_unhealthy", "abc", ""),
    ("failover.max_unhealthy", 0, ""),
    ("failover.max_unhealthy", "101%", ""),
    ("failover.cluster", "UPPER_case", ""),
    ("failover.api_servers", ["notaurl"], "/0"),
    ("log.levels", {"ferroscope.worker": "loud"}, "/ferroscope.worker"),
    ("api.lease_quotas", {"backup/": "many"}, "/backup~1"),
    ("api.trusted_proxies", ["proxy.example.org"], "/0"),
    ("drivers.bmc_networks", ["anywhere"], "/0"),
    ("drivers.ca_directory", "ca", ""),
    ("notifications.networks", ["10.0.0.0/8", "lan"], "/1"),
    ("inspector.forward_unknown_to", "192.0.2.7", ""),
]
LABEL_PLACES = (("config", "/config/failover"), ("failover.config", "/failover/config/failover"))
POSSIBLE: dict[str, Any] = {
    "config.failover.max_unhealthy": 3,
    "failover.config.failover": {
        "cluster": "rack-1", "api_servers": ["https://192.0.2.1:6443"], "mode": "label", "label_namespaces": ["db"],
    },
    "config.failover.label_selector": {"app": "db"},
    "config.log.levels": {"ferroscope.worker": "debug"},
    "config.api.lease_quotas": {"backup/": 10, "controller": "500"},
    "config.api.trusted_proxies": ["192.0.2.1", "2001:db8::/64"],
    "config.api.public_url": "https://inspector.example.org",
    "config.boot.http_url": "http://{host}:8080/",
    "worker.resources.limits": {"memory": "1.5Gi", "cpu": 2},
    "failover.enabled": True,
    "image.digest": f"sha256:{'a' * 64}",
}  # fmt: skip
# Labels that Helm wants, and the one by which releases in one namespace tell their pods apart.
OF_HELM = ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")
COMPONENT = "app.kubernetes.io/component"


@pytest.fixture(scope="module", params=SITES)
def both(request: pytest.FixtureRequest) -> tuple[list[Object], list[Object]]:
    """Give the objects of the chart, and of kustomize."""
    chart, directories = SITES[request.param]
    return chart(), kustomized(*directories)


def test_the_chart_makes_the_objects_that_kustomize_makes(both: tuple[list[Object], list[Object]]) -> None:
    chart, kustomize = (dict(_comparable(objects)) for objects in both)
    assert set(chart) == set(kustomize)
    for name, one in kustomize.items():
        assert chart[name] == one, name


def test_each_role_has_the_same_options(
    both: tuple[list[Object], list[Object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart, kustomize = (_settings(objects, tmp_path, monkeypatch) for objects in both)
    assert set(chart) == set(kustomize) >= {"api", "worker"}
    for role, settings in kustomize.items():
        for section in settings.names:
            if section != "api" or role == "api":  # the others do not serve it
                assert chart[role].section(section) == settings.section(section), f"[{section}] of {role}"


def test_each_pod_may_reach_and_be_reached_by_the_same(both: tuple[list[Object], list[Object]]) -> None:
    for pod in ("api", "worker", "failover", "migration"):
        chart, kustomize = (_allowed(objects, pod) for objects in both)
        assert chart == kustomize, pod
        assert {direction for direction, *_ in chart} <= {"Ingress", "Egress"}


def test_the_namespace_of_boot_hosts_outlives_the_release() -> None:
    kept = {
        (one["kind"], one["metadata"]["name"])
        for one in templated(EVERYTHING)
        if one["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {("Namespace", "ferroscope-boot")}


def test_two_releases_in_one_namespace_have_no_object_and_no_pod_in_common() -> None:
    first = templated(EVERYTHING)
    second = templated(EVERYTHING | {"pxeFilter.namespace": "elsewhere"}, release="second")
    assert not {_key(one) for one in first} & {_key(one) for one in second}
    for one in second:
        selector = one.get("spec", {}).get("selector", one.get("spec", {}).get("podSelector", {}))
        if isinstance(selector, dict) and (labels := selector.get("matchLabels", selector)):
            assert labels["app.kubernetes.io/instance"] == "second", _key(one)


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"api.replica": 3}, "/api"),
        ({"api.replicas": 0}, "/api/replicas"),
        ({"worker.replicas": "two"}, "/worker/replicas"),
        ({"database.secret": ""}, "/database/secret"),
        ({"api.service.type": "loadbalancer"}, "/api/service/type"),
        ({"config.api.auth_strateg": "keystone"}, "/config/api"),
        ({"config.workers.threads": 1}, "/config"),
        ({"config.lease.profile": "slow"}, "/config/lease/profile"),
        ({"worker.config.worker.graceful_timeout": -1}, "/worker/config/worker/graceful_timeout"),
        ({"pxeFilter.config.pxe_filter.network": "a/b"}, "/pxeFilter/config/pxe_filter/network"),
        # What is secret has no place in a ConfigMap.
        ({"config.database.connection": "postgresql://u:p@db/f"}, "/config/database"),
        ({"networkPolicies.egress": [{"port": 70000, "protocol": "TCP"}]}, "/networkPolicies/egress/0/port"),
        ({"image.digest": "sha256:abc"}, "/image/digest"),
        ({"image.repository": "registry.example.org/a b"}, "/image/repository"),
        ({"image.pullSecrets": ["Upper_Case"]}, "/image/pullSecrets/0"),
        ({"database.secret": "Upper_Case"}, "/database/secret"),
        ({"pxeFilter.namespace": "a.b"}, "/pxeFilter/namespace"),
        ({"monitors.interval": "0s"}, "/monitors/interval"),
        ({"worker.resources.limits": {"memory": "1 GB"}}, "/worker/resources/limits/memory"),
        ({"worker.resources.request": {"memory": "1Gi"}}, "/worker/resources"),
        ({"migration.resources.requests": {"cpu": -1}}, "/migration/resources/requests/cpu"),
        ({"api.tolerations": [{"key": "a", "effect": "NoExec"}]}, "/api/tolerations/0/effect"),
        ({"api.nodeSelector": {"disk": "a b"}}, "/api/nodeSelector/disk"),
        ({"api.priorityClassName": "High Priority"}, "/api/priorityClassName"),
        ({"worker.affinity": {"podAntiAfinity": {}}}, "/worker/affinity"),
        ({"api.topologySpreadConstraints": [{"topologyKey": "zone"}]}, "/api/topologySpreadConstraints/0"),
        *(({f"config.{option}": value}, f"/config/{option.replace('.', '/')}{at}") for option, value, at in IMPOSSIBLE),
        *(({f"{place}.failover.mode": "label"}, at) for place, at in LABEL_PLACES),
        (
            {"failover.config.failover": {"mode": "label", "label_selector": {}, "label_namespaces": ["db"]}},
            "/failover/config/failover/label_selector",
        ),
    ],
)
def test_wrong_values_are_refused_with_their_place(values: Object, where: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        templated(values)
    assert f"at '{where}'" in str(refused.value)


@pytest.mark.parametrize(("option", "value", "at"), IMPOSSIBLE)
def test_what_the_schema_refuses_of_options_no_process_starts_with(
    option: str, value: Any, at: str, tmp_path: Path
) -> None:
    section, name = option.split(".")
    text = value
    if isinstance(value, dict):
        text = ",".join(f"{key}:{one}" for key, one in value.items())
    elif isinstance(value, list):
        text = ",".join(value)
    conf = tmp_path / "ferroscope.conf"
    conf.write_text(f"[{section}]\n{name} = {text}\n")
    with pytest.raises((ConfigurationError, ValueError)):
        load([str(conf)]).notifications.subscriptions()


def test_what_is_possible_is_taken_however_it_is_spelled(tmp_path: Path) -> None:
    objects = templated(POSSIBLE)
    conf = tmp_path / "ferroscope.conf"
    conf.write_text(_configuration(objects, "ferroscope-failover"))
    assert load([str(conf)]).part(FailoverSettings).max_unhealthy == "3"
    images = {container["image"] for pod in pods(objects) for container in pod["containers"]}
    assert images == {f"localhost/ferroscope@sha256:{'a' * 64}"}


def test_replicas_are_placed_as_the_values_say() -> None:
    zones = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    nodes = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    for role in ("api", "worker", "failover"):
        values = {"failover.enabled": True, f"{role}.topologySpreadConstraints": [zones], f"{role}.affinity": nodes}
        (one,) = (one for one in templated(values) if _key(one)[::2] == ("Deployment", f"ferroscope-{role}"))
        pod = one["spec"]["template"]["spec"]
        assert pod["affinity"] == nodes
        labels = one["spec"]["selector"]["matchLabels"]
        assert pod["topologySpreadConstraints"] == [zones | {"labelSelector": {"matchLabels": labels}}]


@pytest.mark.parametrize("status", [200, 503])
def test_helm_test_asks_the_api_for_its_health(status: int) -> None:
    (pod,) = (one for one in templated({}) if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test")
    (container,) = pod["spec"]["containers"]
    interpreter, *words, program = container["command"]
    assert (interpreter, words) == ("/usr/bin/python3", ["-c"])
    with HttpTarget() as api:
        api.statuses = [status]
        assert "//ferroscope-api:6385/" in program
        program = program.replace("http://ferroscope-api:6385", api.url)
        done = subprocess.run([sys.executable, *words, program], check=False, capture_output=True)
    assert [request.path for request in api.seen] == ["/healthcheck"]
    assert (done.returncode == 0) is (status == 200)


def test_the_chart_has_no_fault_that_helm_finds() -> None:
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(CHART), "--set", ",".join(
        f"{name}=true" for name in EVERYTHING
    ))  # fmt: skip


def test_mode_label_may_evict_and_the_other_may_not() -> None:
    eviction = ("create", "", "pods/eviction")
    for mode in ("proof", "label"):
        options = {"mode": mode, "label_selector": {"app": "db"}, "label_namespaces": ["db"]}
        objects = templated({"failover.enabled": True, "failover.config.failover": options})
        assert (eviction in _granted(objects, "ferroscope-failover", "")) is (mode == "label")


def test_a_worker_without_lease_objects_has_no_token_and_no_right() -> None:
    objects = templated({"worker.config.coordination.backend": "sql"})
    assert not any(pod["automountServiceAccountToken"] for pod in pods(objects))
    assert not [one for one in objects if one["kind"] in ("Role", "ClusterRole")]


def test_pods_have_the_time_to_end_that_their_options_give_them_and_the_probes_their_ports(tmp_path: Path) -> None:
    values = {
        "config.worker": {"graceful_timeout": 100.5}, "config.api.drain_delay": 20, "config.metrics.port": 9999,
        "config.api.bare_metal_port": 8443, "config.api.max_body_size": 104857600, "failover.enabled": True,
        "config.api.tls_certificate_file": "/etc/tls/tls.crt", "config.api.tls_key_file": "/etc/tls/tls.key",
        "secretFiles": [{"secret": "tls", "path": "/etc/tls"}],
    }  # fmt: skip
    objects = templated(values)
    for pod in pods(objects):
        (container,) = pod["containers"]
        if container["args"] != ["db", "upgrade"]:
            assert pod["terminationGracePeriodSeconds"] >= 100.5 + 10 + 20 * (container["name"] == "api")
        assert {"name": "secret-tls", "mountPath": "/etc/tls", "readOnly": True} in container["volumeMounts"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if container["name"] == "api":
                assert container[probe]["httpGet"]["scheme"] == "HTTPS"
        ports = {one["name"]: one["containerPort"] for one in container.get("ports", ())}
        assert ports.get("metrics", 9999) == 9999
        assert ports.get("bare-metal", 8443) == 8443
    assert ("Ingress", 8443, "TCP") in _allowed(objects, "api")
    assert ("Ingress", 9999, "TCP") in _allowed(objects, "failover")
    conf = tmp_path / "ferroscope.conf"
    conf.write_text(_configuration(objects, "ferroscope-api"))
    assert unknown_options([str(conf)]) == []
    assert load([str(conf)]).api.max_body_size == 104857600


def test_a_changed_option_starts_new_pods_of_the_roles_that_have_it() -> None:
    def checksums(values: Object) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["template"]["metadata"]["annotations"]["checksum/configuration"]
            for one in templated(values)
            if one["kind"] == "Deployment"
        }

    before, after = checksums({}), checksums({"worker.config.worker.threads": 3})
    assert before["ferroscope-api"] == after["ferroscope-api"]
    assert before["ferroscope-worker"] != after["ferroscope-worker"]


def _key(one: Object) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _comparable(objects: list[Object]) -> Iterator[tuple[tuple[str, str, str], Any]]:
    """Yield each object as both make it. Options and network policies have tests of their own.

    Helm's job runs before the release has any object, hence with an account and a configuration of its own. Kustomize
    has nothing like "helm test", whose pod is the only one that is made without a controller.
    """
    for one in objects:
        kind, _, name = _key(one)
        if kind in ("ConfigMap", "NetworkPolicy", "Namespace", "Pod") or (kind, name) == (
            "ServiceAccount", "ferroscope-migration",
        ):  # fmt: skip
            continue
        spec = one.get("spec", {})
        if kind not in ("Deployment", "DaemonSet", "Job", "Service"):
            one["metadata"].pop("labels", None)  # nothing selects it by them
        if kind == "Service":
            spec.setdefault("type", "ClusterIP")
        if kind == "Job":
            pod = spec["template"]["spec"]
            pod.pop("serviceAccountName")
            pod.setdefault("terminationGracePeriodSeconds", 30)
        yield _key(one), _normal(one)


def _normal(value: Any) -> Any:
    """Return it without what Helm adds, without names of configurations, and with lists of named things in order."""
    if isinstance(value, list):
        items = [_normal(item) for item in value]
        return sorted(items, key=partial(json.dumps, sort_keys=True)) if all(map(_is_object, items)) else items
    if not isinstance(value, dict):
        return value
    if "configMap" in value:
        return {"name": value["name"], "configMap": "..."}
    kept = {}
    for name, item in value.items():
        if name in OF_HELM or re.match(r"helm\.sh/|checksum/", name):
            continue
        if name == "env":
            item = [one for one in item if not one["name"].startswith("OS_")]
        normal = _normal(item)
        if normal or name not in ("annotations", "labels", "env", "creationTimestamp"):
            kept[name] = normal
    return kept


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _settings(objects: list[Object], directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Settings]:
    """Return what each role reads: its configuration, and the environment of its container."""
    found = {}
    for one in objects:
        if one["kind"] not in ("Deployment", "DaemonSet"):
            continue
        (container,) = one["spec"]["template"]["spec"]["containers"]
        conf = directory / "ferroscope.conf"
        conf.write_text(_configuration(objects, one["metadata"]["name"]))
        with monkeypatch.context() as patch:
            for variable in container.get("env", ()):
                patch.setenv(variable["name"], variable["value"])
            assert unknown_options([str(conf)]) == []
            found[container["name"]] = load([str(conf)])
    return found


def _configuration(objects: list[Object], name: str) -> str:
    """Return the ferroscope.conf of a Deployment or DaemonSet."""
    (owner,) = (
        one for one in objects if one["kind"] in ("Deployment", "DaemonSet") and one["metadata"]["name"] == name
    )
    (wanted,) = (one["configMap"]["name"] for one in owner["spec"]["template"]["spec"]["volumes"] if "configMap" in one)
    where = owner["metadata"]["namespace"]
    (found,) = (one for one in objects if _key(one) == ("ConfigMap", where, wanted))
    text: str = found["data"]["ferroscope.conf"]
    return text


def _allowed(objects: list[Object], component: str) -> set[tuple[str, int, str]]:
    """Return direction, port and protocol of each connection that a component's pods may have."""
    labels = {"app.kubernetes.io/name": "ferroscope", "app.kubernetes.io/instance": "ferroscope", COMPONENT: component}
    isolated, found = set(), set()
    for one in objects:
        if one["kind"] != "NetworkPolicy":
            continue
        spec = one["spec"]
        if (spec["podSelector"].get("matchLabels") or {}).items() <= labels.items():
            isolated |= set(spec["policyTypes"])
            for direction in spec["policyTypes"]:
                for rule in spec.get(direction.lower(), ()):
                    assert set(rule) == {"ports"}
                    found |= {(direction, port["port"], port["protocol"]) for port in rule["ports"]}
    assert isolated == {"Ingress", "Egress"}, "everything is allowed"
    return found


def _granted(objects: list[Object], role: str, namespace: str) -> set[tuple[str, str, str]]:
    kind = "Role" if namespace else "ClusterRole"
    return {
        (verb, group, resource)
        for one in objects
        if _key(one) == (kind, namespace, role)
        for rule in one["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
