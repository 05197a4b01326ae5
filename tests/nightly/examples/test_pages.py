"""The commands of pages that operators follow, in order: sizing, moving from MAAS or Foreman, upgrading, exporting."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.api.service import Service
from tests.fast.docs.pages import Page, page
from tests.nightly.monitoring.test_export_readers import Ansible
from tests.support.follower import Follower, steps
from tests.system.cli.conftest import listener, service, shell
from tests.system.cli.console import Shell

__all__ = ["listener", "service", "shell"]

MAAS_MACHINES: Final = [
    {"system_id": "x4abc1", "hostname": "rack1-u07", "power_type": "redfish", "pool": {"name": "default"},
     "zone": {"name": "r1"}, "interface_set": [{"mac_address": "52:54:00:0a:01:07"}, {"mac_address": None}]},
    {"system_id": "x4abc2", "hostname": "rack1-u08", "power_type": "ipmi", "pool": {"name": "gpu"},
     "zone": {"name": "r1"}, "interface_set": [{"mac_address": "52:54:00:0a:01:08"}]},
    {"system_id": "x4abc3", "hostname": "vm1", "power_type": "lxd", "pool": {"name": "default"},
     "zone": {"name": "r1"}, "interface_set": []},
]  # fmt: skip
MAAS_POWER: Final = {
    "x4abc1": {"power_address": "192.0.2.17", "power_user": "maas", "power_pass": "Canary-1"},
    "x4abc2": {"power_address": "192.0.2.18", "power_user": "maas", "power_pass": "Canary,2"},
    "x4abc3": {"power_address": "https://lxd.example.org"},
}
FOREMAN_HOSTS: Final = [
    {"name": f"rack2-u0{number}", "location_name": "Berlin 1", "interfaces": [
        {"type": "bmc", "ip": f"192.0.2.2{number}", "username": "admin", "provider": "IPMI", "mac": None},
        {"type": "interface", "mac": f"52:54:00:0b:01:0{number}"}, {"type": "bond", "mac": None}]}
    for number in (1, 2)
]  # fmt: skip


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    made = Follower(tmp_path)
    yield made
    made.end()


def test_the_page_about_sizing(follower: Follower) -> None:
    for command in steps("docs/how-to/size-it.md"):
        if "--limit" not in command:
            follower.follow(command)
    total = next(
        int(line.split()[0]) for line in follower.outputs["du -kc machines.db*"].splitlines() if "total" in line
    )
    print(f"{total / 50:.0f} KB for a machine with one inspection")
    assert 5 < total / 50 < 200


def _programs(source: Page) -> list[str]:
    return [block.text for block in source.blocks if block.language == "text"]


def test_the_machines_of_a_maas_and_a_foreman_are_imported(shell: Shell, tmp_path: Path) -> None:
    name = "docs/how-to/move-from-maas-or-foreman.md"
    (tmp_path / "maas.jq").write_text(_programs(page(name))[0])
    (tmp_path / "foreman.jq").write_text(_programs(page(name))[1])
    (tmp_path / "machines.json").write_text(json.dumps(MAAS_MACHINES))
    (tmp_path / "power.json").write_text(json.dumps(MAAS_POWER))
    (tmp_path / "hosts.json").write_text("\n".join(map(json.dumps, FOREMAN_HOSTS)))
    imported: list[str] = []
    for command in steps(name):
        words = shlex.split(command)
        if words[0] == "jq":
            done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            table = tmp_path / words[-1]
            if table.suffix == ".csv":  # these drivers are not enabled here
                text = table.read_text()
                table.write_text(text.replace('"redfish"', '"fake-hardware"').replace('"ipmi"', '"fake-hardware"'))
        elif words[:3] == ["ferroscope", "node", "import"]:
            file, options = str(tmp_path / words[3]), words[4:]
            imported += [one["result"] for one in shell.json("node", "import", file, *options)]
    assert imported == ["would be created"] * 2 + ["created"] * 2 + ["would be created"] * 2 + ["created"] * 2
    with (tmp_path / "maas.csv").open(newline="") as table:
        assert [row["bmc_password"] for row in csv.DictReader(table)] == ["Canary-1", "Canary,2"]
    nodes = {one["name"]: one for one in shell.json("node", "list", "--fields", "name,labels")}
    assert set(nodes) == {"rack1-u07", "rack1-u08", "rack2-u01", "rack2-u02"}
    assert nodes["rack1-u08"]["labels"] == {"pool": "gpu", "zone": "r1"}
    assert nodes["rack2-u01"]["labels"] == {"location": "Berlin-1"}
    with (tmp_path / "foreman.csv").open(newline="") as table:
        assert [row["bmc_address"] for row in csv.DictReader(table)] == ["192.0.2.21", "192.0.2.22"]


def test_the_commands_of_the_page_about_exports(service: Service, shell: Shell, tmp_path: Path) -> None:
    service.enrol(name="a1", labels={"rack": "r1"}, driver_info={"redfish_address": "https://a1-bmc.example.org"})
    ansible = Ansible(tmp_path, shell.url)
    (tmp_path / "site.yml").write_text("- hosts: all\n  gather_facts: false\n  tasks: []\n")
    ran = 0
    for command in steps("docs/how-to/export-the-fleet.md"):
        words = [str(tmp_path / Path(word).name) if word.endswith((".csv", ".json", "site.yml")) else word
                 for word in shlex.split(command)]  # fmt: skip
        variables = dict(word.split("=", 1) for word in words if word.startswith("FERROSCOPE_"))
        words = words[len(variables) :]
        if words[0].startswith("ansible"):
            ansible(words[0], *(word for word in words[1:] if word != "-i" and "inventory" not in word), **variables)
        else:
            shell(*words[1:], check=0)
        ran += 1
    assert ran == 5
    assert "a1" in (tmp_path / "fleet.csv").read_text()
    assert "a1-bmc.example.org" in (tmp_path / "bmcs.json").read_text()
