"""Somebody who has the files of a release, two nodes and docs/how-to/run-on-kubernetes.md, and no checkout."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import requests

from tests import ROOT
from tests.support.follower import steps
from tests.support.installation import Played
from tests.support.kubernetes_node import Rack
from tests.support.processes import until
from tests.support.speed import slowness

Pod = dict[str, Any]

PAGE: Final = "docs/how-to/run-on-kubernetes.md"
SPACE: Final = "ferroscope"
PASSWORD: Final = "of-alice-123"
_PATIENCE: Final = 300.0  # for one command; helm waits for a job
_READY: Final = 180.0  # for pods, on a machine that has other things to do


class Stranger:
    """``types`` runs a command that is on the page, ``runs`` one that is not."""

    def __init__(self, directory: Path, released: Path, venv: Path, rack: Rack) -> None:
        self.directory, self.cluster = directory, rack.cluster
        self._commands = set(steps(PAGE))
        self._ends = ExitStack()
        subprocess.run(["tar", "-xf", *released.glob("ferroscope-*[0-9].tar.gz")], cwd=directory, check=True)
        (self.source,) = directory.glob("ferroscope-*[0-9]/")
        (self.chart,) = released.glob("ferroscope-*[0-9].tgz")
        self.environment = {
            "HOME": str(directory), "KUBECONFIG": str(rack.cluster.kubeconfig), "LANG": "C.UTF-8", "COLUMNS": "160",
            "PATH": os.pathsep.join((str(venv / "bin"), str(ROOT / ".helm"), os.environ["PATH"])),
        }  # fmt: skip

    def close(self) -> None:
        self._ends.close()

    def types(self, command: str, *, given: str = "", own: tuple[str, str] = ("", "")) -> str:
        """Run a command of the page in the unpacked source, with ``own[1]`` in place of its ``own[0]``."""
        assert command in self._commands, f"{PAGE} does not say: {command}"
        assert not own[0] or own[0] in command
        return self.runs(command.replace(*own) if own[0] else command, given=given)

    def runs(self, command: str, *, given: str = "") -> str:
        """Run a command in the unpacked source; return what it said."""
        code, said = self.tries(command, given=given)
        assert code == 0, f"{command}: {code}\n{said}"
        return said

    def tries(self, command: str, *, given: str = "") -> tuple[int, str]:
        """Run a command that may fail; return its exit code, and what it said."""
        done = subprocess.run(
            ["bash", "-c", command], input=given, cwd=self.source, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=_PATIENCE * slowness(),
        )  # fmt: skip
        return done.returncode, done.stdout

    def keeps(self, command: str) -> Played:
        """Run a command in another terminal, until the end."""
        words = ["env", "-i", *(f"{name}={value}" for name, value in self.environment.items()), *command.split()]
        played = Played(f"{len(list(self.directory.glob('*.log')))}", self.directory, words, cwd=self.source)
        self._ends.callback(played.end)
        return played

    @contextmanager
    def forwarded(self, command: str, *, place: str = "") -> Iterator[Played]:
        """Run ``kubectl port-forward`` of the page, or one to another ``place``, meanwhile."""
        assert command in self._commands
        kept = self.keeps(command.replace("deployment/ferroscope", place or "deployment/ferroscope"))
        try:
            kept.wait_ready("Forwarding")
            yield kept
        finally:
            kept.end()

    def pods(self, component: str, namespace: str = SPACE) -> list[Pod]:
        """Return the pods of a component that do not end."""
        labels = "app.kubernetes.io/component"
        with contextlib.suppress(requests.RequestException):
            return [
                one
                for one in self.cluster.pods(namespace)
                if one["metadata"].get("labels", {}).get(labels) == component
                and "deletionTimestamp" not in one["metadata"]
            ]
        return []

    def ready(self, component: str, namespace: str = SPACE) -> list[str]:
        """Return the names of those that are ready."""
        return [one["metadata"]["name"] for one in self.pods(component, namespace) if _is_ready(one)]

    def awaits(self, what: Callable[[], bool], namespace: str = SPACE) -> None:
        """Wait for it; where it does not come, say how the pods are, as ``kubectl describe`` does."""
        if not until(what, seconds=_READY):
            said = [self.tries(f"kubectl --namespace {namespace} {words}")[1] for words in _LOOKS]
            raise AssertionError("\n".join(said)[-12000:])

    def nodes(self) -> dict[str, str]:
        """Return the state of each node of the service, and when its last inspection has finished, by name."""
        fields = "name,provision_state,inspection_finished_at"
        code, said = self.tries(f"ferroscope node list --fields {fields} --output json 2>/dev/null")
        found = json.loads(said) if code == 0 else []
        return {one["name"]: f"{one['provision_state']} {one['inspection_finished_at'] or ''}" for one in found}

    def inspected(self) -> set[str]:
        """Return the names of the nodes that have an inventory."""
        return {name for name, state in self.nodes().items() if state.startswith("manageable 2")}


_LOOKS: Final = (
    "get pods -o wide", "describe pods", "get events",
    "logs --all-containers --prefix --tail=30 --selector app.kubernetes.io/name=ferroscope",
)  # fmt: skip


def _is_ready(pod: Pod) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def installed(released: Path) -> Path:
    """Return the environment into which they have installed the wheel, made once for all processes."""
    venv, done = released.parent / "stranger", released.parent / "stranger.done"
    with venv.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            pip = [str(venv / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.txt")], check=True)
            subprocess.run([*pip, "--no-deps", *map(str, released.glob("*.whl"))], check=True)
            done.touch()
    return venv
