"""How the ramdisk starts the agent, depending on the parameters that it got."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support import ramdisk
from tests.support.processes import PATIENCE, until


@pytest.fixture(scope="module")
def agent() -> Any:
    return ramdisk.load_agent()


def _collectors(arguments: list[str]) -> list[str]:
    (found,) = (word for word in arguments if word.startswith("--inspection_collectors="))
    return found.partition("=")[2].split(",")


def test_lldp_is_heard_once_by_its_collector_and_not_in_each_list_of_nics(agent: Any) -> None:
    found = agent.arguments({"ipa-collect-lldp": "1"})
    assert "--nocollect_lldp" in found
    assert _collectors(found)[-2:] == ["lldp", "logs"]


def test_without_lldp_nobody_listens(agent: Any) -> None:
    for given in ({}, {"ipa-collect-lldp": "0"}):
        assert "lldp" not in _collectors(agent.arguments(given))


def test_vlans_that_are_learnt_from_lldp_need_it_in_the_list_of_nics(agent: Any) -> None:
    found = agent.arguments({"ipa-collect-lldp": "1", "ipa-enable-vlan-interfaces": "all"})
    assert "--nocollect_lldp" not in found
    assert "lldp" not in _collectors(found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("default", ["default", "lldp"]),
        ("default,logs", ["default", "lldp", "logs"]),
        ("lldp,default,logs", ["lldp", "default", "logs"]),
    ],
)
def test_collectors_that_a_parameter_chooses_stay(agent: Any, given: str, expected: list[str]) -> None:
    parameters = {"ipa-inspection-collectors": given, "ipa-collect-lldp": "true"}
    assert _collectors(agent.arguments(parameters)) == expected
    assert _collectors(agent.arguments({"ipa-inspection-collectors": given})) == given.split(",")


class _Nics:
    """The agent's module: NICs that hear their switch once it is let, with those of ``live`` up."""

    def __init__(self, *live: str) -> None:
        self.live = list(live)
        self.asked: list[list[str]] = []
        self.sends = threading.Event()

    def list_interfaces(self) -> list[str]:
        return ["dead", "up", "late"]

    def interface_has_carrier(self, name: str) -> bool:
        return name in self.live

    def get_lldp_info(self, names: list[str]) -> dict[str, list[tuple[int, bytes]]]:
        self.asked.append(names)
        assert self.sends.wait(PATIENCE)
        return {name: [(1, b"switch")] for name in names}


def test_the_agent_hears_lldp_while_it_does_other_things_and_only_once_and_where_a_cable_is(agent: Any) -> None:
    nics = _Nics("up")
    agent.listen_meanwhile(nics)
    assert until(lambda: nics.asked == [["up"]])  # before anything asks for it
    nics.live.append("late")
    nics.sends.set()
    heard = [(1, b"switch")]
    for _ in range(2):
        assert nics.get_lldp_info(["dead", "up", "late"]) == {"dead": [], "up": heard, "late": heard}
    assert nics.asked == [["up"], ["late"]]


class _Flags:
    """ethtool of NICs with these private flags, of which one stays; ``said``: what was commanded."""

    def __init__(self, **flags: str | None) -> None:
        self.flags = flags
        self.said: list[tuple[str, ...]] = []

    def __call__(self, *words: str) -> tuple[bool, str]:
        command, nic, *change = words
        if command == "--show-priv-flags":
            return True, f"Private flags for {nic}:\nMFP                    : off\n{self.flags[nic] or ''}"
        if nic == "stuck":
            return False, "netlink error: Operation not supported"
        self.said.append((nic, *change))
        self.flags[nic] = f"{change[0]:23}: {change[1]}"
        return True, ""


class _Inspector:
    """The agent's module that calls back."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def call_inspector(self, data: dict[str, Any], _failures: object) -> None:
        self.sent.append(data)


def test_intel_nics_pass_lldp_up_until_the_agent_calls_back(
    agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their firmware keeps it: https://github.com/lldpd/lldpd/issues/444, metal-stack/metal-hammer#3."""
    drivers = {"x710": "i40e", "e810": "ice", "ready": "i40e", "stuck": "i40e", "old": "ice", "mellanox": "mlx5_core"}
    for nic, driver in drivers.items():
        (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (tmp_path / "net" / nic / "device").mkdir(parents=True)
        (tmp_path / "net" / nic / "device" / "driver").symlink_to(tmp_path / "drivers" / driver)
    (tmp_path / "net" / "lo").mkdir()
    nics = _Flags(
        x710="disable-fw-lldp        : off", e810="fw-lldp-agent          : on", old=None,
        ready="disable-fw-lldp        : on", stuck="disable-fw-lldp        : off",
    )  # fmt: skip
    monkeypatch.setattr(agent, "NICS", tmp_path / "net")
    monkeypatch.setattr(agent, "ethtool", nics)
    changed, kept = agent.pass_lldp_up()
    assert nics.said == [("e810", "fw-lldp-agent", "off"), ("x710", "disable-fw-lldp", "on")]
    assert kept == {"old": "ice has no flag fw-lldp-agent", "stuck": "netlink error: Operation not supported"}
    inspector = _Inspector()
    agent.give_lldp_back(inspector, changed, kept)
    inspector.call_inspector({"inventory": {}}, None)
    assert inspector.sent == [{"inventory": {}, "lldp_kept": kept}]
    assert nics.said[2:] == [("e810", "fw-lldp-agent", "on"), ("x710", "disable-fw-lldp", "off")]


def test_what_the_agent_logs_has_no_secret(agent: Any) -> None:
    written = io.StringIO()
    masked = agent.Masked(written)
    masked.write("Posting to http://10.0.0.1/v1/continue_inspection?secret=0abc1 ('/x?a=b&secret=0abc1')\n")
    masked.write("ipa-agent-token=0abc1 console=ttyS0\n")
    masked.flush()
    assert "0abc1" not in written.getvalue()
    assert written.getvalue().endswith("('/x?a=b&secret=***')\nipa-agent-token=*** console=ttyS0\n")
