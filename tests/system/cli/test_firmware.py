"""``ferroscope firmware report``: versions by model, and what is older than a list allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.system.cli.console import Shell

MACHINES = {
    "a1": ("PowerEdge R740 (SKU=1;ModelName=PowerEdge R740)", "2.9.4"),
    "a2": ("PowerEdge R740", "2.10.0"),
    "a10": ("PowerEdge R740", "2.9.4"),
    "b1": ("ProLiant DL380 Gen10", "U30"),
}

COMPONENTS = [
    {"component": "bmc", "name": "iDRAC", "model": "14G Monolithic", "version": "6.10"},
    {"component": "nic", "name": "NIC.1", "model": "ConnectX-5 EN", "version": "16.35.1"},
    {"component": "nic", "name": "NIC.2", "model": "ConnectX-5 EN", "version": "16.35.1"},
]


@pytest.fixture
def fleet(service: Service, shell: Shell) -> None:
    for name, (model, version) in MACHINES.items():
        vendor = {"product_name": model, "firmware": {"version": version}}
        service.learn(service.enrol(name=name), {"system_vendor": vendor})
    service.enrol(name="never-inspected")
    service.learn(service.enrol(name="c1"), {"system_vendor": {"product_name": "R650"}, "firmware": COMPONENTS})
    shell("node", "set", "a1", "b1", "--label", "rack=r1", check=0)


@pytest.mark.usefixtures("fleet")
def test_versions_are_counted_by_model_and_old_ones_are_found(shell: Shell, tmp_path: Path) -> None:
    plain = shell.json("firmware", "report")
    assert [(one["model"], one["version"], one["nodes"], one["wanted"]) for one in plain] == [
        ("PowerEdge R740", "2.9.4", ["a1", "a10"], None),
        ("PowerEdge R740", "2.10.0", ["a2"], None),
        ("ProLiant DL380 Gen10", "U30", ["b1"], None),
        ("R650", "6.10", ["c1"], None),
        ("R650", "16.35.1", ["c1"], None),
    ]
    wanted = tmp_path / "firmware.yaml"
    wanted.write_text("- {model: poweredge r7*, bios: '2.10'}\n- {model: '*', bios: U30}\n")
    judged = shell.json("firmware", "report", "--list", str(wanted), check=Exit.FAILURE)
    assert [one["outdated"] for one in judged] == [True, False, False, False, False]
    (old,) = shell.json("firmware", "report", "--list", str(wanted), "--outdated", "-l", "rack=r1", check=1)
    assert old["nodes"] == ["a1"]
    wanted.write_text("- {model: '*', bios: '1'}\n")
    shell("firmware", "report", "--list", str(wanted), "-l", "rack!=r1", check=0)


@pytest.mark.usefixtures("fleet")
def test_other_components_are_judged_by_their_models(shell: Shell, tmp_path: Path) -> None:
    wanted = tmp_path / "firmware.yaml"
    wanted.write_text("- {model: R6*, bmc: '7.00'}\n- {model: '*', parts: {X710: '9', 'connectx-5*': '16.35.2'}}\n")
    judged = shell.json("firmware", "report", "--list", str(wanted), "--outdated", check=Exit.FAILURE)
    assert [(one["component"], one["part"], one["version"], one["wanted"]) for one in judged] == [
        ("bmc", "14G Monolithic", "6.10", "7.00"),
        ("nic", "ConnectX-5 EN", "16.35.1", "16.35.2"),
    ]
    wanted.write_text("- {model: '*', bmc: '6.9', parts: {'*': '16'}}\n")
    shell("firmware", "report", "--list", str(wanted), check=0)


@pytest.mark.parametrize("text", ["- {model: a}", "- {model: a, bios: 2.1}", "[", "- 1", "a: b"])
def test_a_list_that_cannot_be_is_a_usage_error(shell: Shell, tmp_path: Path, text: str) -> None:
    wanted = tmp_path / "firmware.yaml"
    wanted.write_text(text)
    shell("firmware", "report", "--list", str(wanted), check=Exit.USAGE)


def test_outdated_needs_a_list(shell: Shell) -> None:
    shell("firmware", "report", "--outdated", check=Exit.USAGE)
