"""``ferroscope expect``: what is expected, what deviates, and where it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.system.cli.console import Shell

INVENTORY = {"memory": {"physical_mb": 1024}, "disks": [{"name": "/dev/sda", "size": 10**12}]}
FILE = """\
- name: web servers
  nodes: role=web
  expect:
    - count(disk) >= 1
    - count(nic[link == up]) >= 50
- name: racks
  names: rack*
  severity: failure
  expect: [memory >= 1PiB]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "expected.yaml"
    path.write_text(FILE)
    return path


def test_deviations_are_found_at_once_reported_and_gone_when_nothing_is_expected(
    shell: Shell, service: Service, file: Path, tmp_path: Path
) -> None:
    uuids = {name: service.enrol(name=name) for name in ("rack1-u01", "web-1", "other", "new")}
    for name in ("rack1-u01", "web-1", "other"):
        service.learn(uuids[name], INVENTORY)
    shell("node", "set", "web-1", "--label", "role=web", check=0)
    planned = shell.json("expect", str(file), "--dry-run")
    assert (planned["added"], planned["checked"]) == (["web servers", "racks"], 0)
    assert shell.json("expect", "show") == {"expectations": []}
    done = shell.json("expect", str(file))
    assert (done["added"], done["checked"], done["deviating"]) == (["web servers", "racks"], 3, 2)
    found = shell.json("expect", "report", check=Exit.FAILURE)
    assert [(one["name"], [d["condition"] for d in one["deviations"]]) for one in found] == [
        ("rack1-u01", ["memory >= 1PiB"]),
        ("web-1", ["count(nic[link == up]) >= 50"]),
    ]
    assert [one["name"] for one in shell.json("expect", "report", "--failures", check=1)] == ["rack1-u01"]
    assert [one["name"] for one in shell.json("expect", "report", "-l", "role", check=1)] == ["web-1"]
    codes = {one["code"] for one in service.bare_metal.get("/v1/status").json["problems"]}
    assert "hardware-deviates" in codes
    assert "memory >= 1PiB" in shell("node", "timeline", "rack1-u01", "--all", check=0).stdout
    again = shell.json("expect", str(file))
    assert (again["added"], again["changed"], again["removed"]) == ([], [], [])
    shown = yaml.safe_load(shell("expect", "show", check=0).stdout)
    assert [one["name"] for one in shown["expectations"]] == ["web servers", "racks"]
    empty = tmp_path / "empty.yaml"
    empty.write_text("[]\n")
    assert shell.json("expect", str(empty))["removed"] == ["web servers", "racks"]
    assert shell.json("expect", "report") == []
    assert "hardware-deviates" not in {one["code"] for one in service.bare_metal.get("/v1/status").json["problems"]}


def test_more_nodes_than_a_page_are_checked(shell: Shell, service: Service, file: Path) -> None:
    for number in range(52):
        service.enrol(name=f"n{number}")
    service.learn(service.enrol(name="rack9"), INVENTORY)
    assert shell.json("expect", str(file))["deviating"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "- name: a\n  expect: [memory >=]\n", "- name: a\n", "- name: a\n  expect: [has gpu]\n  extra: 1\n",
        "nodes: 1\n",
        "- [", "- name: a\n  expect: [has gpu]\n- name: a\n  expect: [has gpu]\n", "\x00", "- name: a\n  expect: []\n",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_changes_nothing(shell: Shell, file: Path, text: str) -> None:
    shell("expect", str(file), check=0)
    file.write_text(text)
    shell("expect", str(file), check=Exit.USAGE)
    assert len(shell.json("expect", "show")["expectations"]) == 2
