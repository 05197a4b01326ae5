"""``ferroscope machines`` as a process beside the service and a simulated fleet, on a small API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from bench.service import executable
from tests.support.faulty_machines import FaultyMachines
from tests.support.machine_site import MachineSite
from tests.support.processes import PATIENCE, until


@pytest.fixture
def api() -> Iterator[FaultyMachines]:
    with FaultyMachines() as found:
        yield found


def kubeconfig(api: FaultyMachines, directory: Path) -> Path:
    file = directory / "kubeconfig"
    file.write_text(json.dumps({
        "clusters": [{"name": "c", "cluster": {"server": api.url}}], "users": [{"name": "u", "user": {"token": "x"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
    }))  # fmt: skip
    return file


def conditions(api: FaultyMachines, kind: str) -> set[tuple[str, str]]:
    return {api.condition(key.partition("/")[2], kind) for key in list(api.objects["machines"])}


def test_machines_applied_at_once_are_enrolled_and_inspected_though_the_controllers_are_killed(
    api: FaultyMachines, tmp_path: Path
) -> None:
    with MachineSite(tmp_path, kubeconfig(api, tmp_path), machines=12, controllers=2) as site:
        for name, spec in site.specs.items():
            api.apply(name, spec, annotations={"ferroscope/inspect": ""})
        for number in range(4):
            assert until(lambda number=number: len(api.writes) > 10 * (number + 1))
            killed = site.controllers[number % 2]
            killed.kill()
            killed.start()
        assert until(lambda: conditions(api, "Inspected") == {("True", "Finished")})
        nodes = site.nodes()
        assert sorted(node["name"] for node in nodes) == sorted(site.specs)
        shown: dict[str, Any] = {name: api.machine(name) for name in site.specs}
        assert {one["status"]["state"] for one in shown.values()} == {"manageable"}
        assert all(one["status"]["hardware"]["cpus"] for one in shown.values())
        assert all(not one["metadata"].get("annotations") for one in shown.values())
        # A new leader looks at everything, and has nothing to write.
        for one in site.controllers:
            one.wait_ready()  # before that, SIGTERM ends it like any program that is starting
            assert one.stop() == 0
        site.controllers[0].start()
        nothing = "12 Machines, 0 to look at, 0 writes"
        assert until(lambda: nothing in requests.get(f"{site.url}/v1/status", timeout=PATIENCE).text)
        for name in site.specs:
            api.delete(name)
        assert until(lambda: not api.objects["machines"])
        assert site.nodes() == []
        assert site.controllers[0].stop() == 0


def test_a_start_without_the_custom_resource_ends_with_one_sentence(api: FaultyMachines, tmp_path: Path) -> None:
    api.served = False
    config = tmp_path / "ferroscope.conf"
    file = kubeconfig(api, tmp_path)
    config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/x.db\n[machines]\nkubeconfig = {file}\n")
    done = subprocess.run(
        [executable(), "machines", "-c", str(config)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "machines.ferroscope.io" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_hundred_machines_at_once(api: FaultyMachines, tmp_path: Path) -> None:
    with MachineSite(tmp_path, kubeconfig(api, tmp_path), machines=200) as site:
        for name, spec in site.specs.items():
            api.apply(name, spec, annotations={"ferroscope/inspect": ""})
        assert until(lambda: conditions(api, "Enrolled") == {("True", "Enrolled")}, seconds=300)
        assert until(lambda: conditions(api, "Inspected") == {("True", "Finished")}, seconds=600)
