"""The objects of deploy/: as kustomize makes them of deploy/kubernetes, and Helm of its chart, by the real programs."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests import ROOT
from tests.support.kubernetes_programs import release
from tests.support.speed import slowness

KUSTOMIZATIONS: Final = ROOT / "deploy/kubernetes"
CHART: Final = ROOT / "deploy/helm/ferroscope"
_PROGRAMS: Final = ROOT / ".helm"

Object = dict[str, Any]


def run(program: str, *words: str, kubeconfig: Path | None = None) -> str:
    """Run helm, or the kubectl of its age; ``RuntimeError`` with what it says if it fails."""
    with tempfile.TemporaryDirectory(prefix="ferroscope-helm-") as home:
        environment = {"HOME": home, "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig or Path(home, "none"))}
        try:
            done = subprocess.run(
                [_PROGRAMS / program, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=300 * slowness(),
                env=environment,
            )
        except FileNotFoundError:
            raise RuntimeError(f"{_PROGRAMS / program} does not exist: run tools/setup.sh helm") from None
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def kustomized(*directories: str) -> list[Object]:
    """Return the objects of these directories of deploy/kubernetes, such as overlays/postgresql."""
    return [one for where in directories for one in _objects(run("kubectl", "kustomize", str(KUSTOMIZATIONS / where)))]


def templated(values: Object, *words: str, release: str = "ferroscope", namespace: str = "ferroscope") -> list[Object]:
    """Return the objects of the chart with these values; ``words``: more arguments, such as another file of values."""
    return _objects(run("helm", "template", release, str(CHART), "--namespace", namespace, *words, *given(values)))


def given(values: Object) -> list[str]:
    """Return the arguments of helm that set these values, one by one."""
    return [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]


def pods(objects: list[Object]) -> list[Object]:
    """Return the spec of each pod that these objects make."""
    return [one["spec"]["template"]["spec"] for one in objects if "template" in one.get("spec", {})]


def as_served(objects: list[Object]) -> list[Object]:
    """Return them as the Kubernetes of the tests knows them: in 1.20, no Pod Disruption Budget is in policy/v1."""
    if release() >= (1, 21):
        return objects
    budgets = [one for one in objects if one["kind"] == "PodDisruptionBudget"]
    assert {one["apiVersion"] for one in budgets} <= {"policy/v1"}
    return [one | {"apiVersion": "policy/v1beta1"} if one in budgets else one for one in objects]


def _objects(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]
