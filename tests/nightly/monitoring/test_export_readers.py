"""What ``ferroscope export`` writes, as those read it for whom it is: the real Ansible and Prometheus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests import ROOT
from tests.api.service import Service
from tests.fast.cli.running import NO_CREDENTIALS
from tests.system.cli.console import Shell

ANSIBLE: Final = ROOT / ".ansible-venv" / "bin"
SCRIPT: Final = ROOT / "deploy" / "ansible" / "ferroscope-inventory"
HOSTILE: Final = "{{ lookup('ansible.builtin.pipe', 'touch touched') }}"
VENDOR: Final = {"manufacturer": "Dell", "serial_number": HOSTILE}


@pytest.fixture
def fleet(service: Service, shell: Shell) -> None:
    for name in ("a1", "b1"):
        info = {"redfish_address": f"https://{name}-bmc.example.org", "redfish_password": "Canary-3f"}
        service.learn(service.enrol(name=name, driver_info=info), {"system_vendor": VENDOR})
    shell("node", "set", "a1", "--label", "rack=r1", "--label", "spare", check=0)


class Ansible:
    """The programs of ansible-core, with nothing but this inventory."""

    def __init__(self, directory: Path, url: str) -> None:
        if not (ANSIBLE / "ansible").exists():
            raise RuntimeError("the tests need ansible-core in .ansible-venv; run: tools/setup.sh ansible")
        kept = {name: value for name, value in os.environ.items() if name not in NO_CREDENTIALS}
        path = os.pathsep.join([str(ANSIBLE), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**kept, "PATH": path, "FERROSCOPE_URL": url, "ANSIBLE_HOME": str(directory / "ansible"),
                             "LC_ALL": "C.UTF-8", "ANSIBLE_LOCALHOST_WARNING": "false"}  # fmt: skip
        self._directory = directory

    def __call__(self, program: str, *arguments: str, **environment: str) -> str:
        command = [str(ANSIBLE / program), "-i", str(SCRIPT), *arguments]
        done = subprocess.run(
            command,
            cwd=self._directory,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Failed to parse" not in done.stderr, done.stderr
        return done.stdout


@pytest.mark.usefixtures("fleet")
def test_ansible_reads_groups_and_variables_and_runs_nothing_that_a_machine_reports(
    shell: Shell, tmp_path: Path
) -> None:
    ansible = Ansible(tmp_path, shell.url)
    found: dict[str, Any] = json.loads(ansible("ansible-inventory", "--list"))
    assert found["ferroscope"]["hosts"] == ["a1", "b1"]
    assert found["label_rack_r1"]["hosts"] == found["label_spare"]["hosts"] == ["a1"]
    assert set(found["_meta"]["hostvars"]) == {"a1", "b1"}
    message = "serial {{ ferroscope_hardware.serial }} of {{ ferroscope_name }}"
    said = ansible("ansible", "label_spare", "-c", "local", "-m", "ansible.builtin.debug", "-a", f'msg="{message}"')
    assert "serial {{ lookup(" in said
    assert "of a1" in said
    assert not (tmp_path / "touched").exists()
    assert "Canary" not in json.dumps(found) + said
    narrowed = json.loads(ansible("ansible-inventory", "--list", FERROSCOPE_SELECTOR="!spare"))
    assert set(narrowed["_meta"]["hostvars"]) == {"b1"}


CONFIGURATION: Final = """\
scrape_configs:
- job_name: machines
  file_sd_configs: [{files: [targets.json]}]
  relabel_configs:
  - {source_labels: [__meta_ferroscope_label_rack], regex: r1, action: keep}
  - {source_labels: [__meta_ferroscope_vendor], target_label: vendor}
"""


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("target", ["name", "bmc"])
def test_prometheus_accepts_and_finds_the_targets(shell: Shell, tmp_path: Path, target: str) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "the tests need promtool; run: tools/setup.sh prometheus"
    parameters = ("-p", f"target={target}", "-p", "port=9100")
    targets = tmp_path / "targets.json"
    shell("export", "prometheus-sd", *parameters, "--output", str(targets), check=0)
    (tmp_path / "prometheus.yml").write_text(CONFIGURATION)

    def check(*arguments: str) -> str:
        command = [promtool, "check", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    check("config", "prometheus.yml")
    found = json.loads(check("service-discovery", "--timeout", "5s", "prometheus.yml", "machines"))
    kept = [one["labels"] for one in found if one["labels"]]
    address = {"name": "a1:9100", "bmc": "a1-bmc.example.org:9100"}[target]
    assert [(one["instance"], one["vendor"]) for one in kept] == [(address, "Dell")]
    assert len(found) == 2
    assert "Canary" not in targets.read_text()
