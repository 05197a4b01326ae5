"""The hook of docs/how-to/write-a-hook.md works as that page says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.hooks import loader
from ferroscope.hooks.base import HookError, InspectionHook
from ferroscope.hooks.lldp import ParseLldpHook
from ferroscope.hooks.ports import PortsHook
from ferroscope.hooks.validate_interfaces import ValidateInterfacesHook
from ferroscope_client.core.reasons import Reason
from ferroscope_sim import inventory as sim
from tests import ROOT
from tests.fast.hooks.runs import Run, run_objects

PAGE = (ROOT / "docs" / "how-to" / "write-a-hook.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def rack_hook() -> Callable[[], InspectionHook]:
    module: dict[str, Any] = {"__name__": "rack_hook"}
    exec(compile(blocks("python")[0], "rack_hook.py", "exec"), module)
    (project,) = (tomllib.loads(text)["project"] for text in blocks("toml"))
    (target,) = project["entry-points"][loader.GROUP].values()
    assert target == "rack_hook:RackHook"
    hook: Callable[[], InspectionHook] = module[target.partition(":")[2]]
    return hook


def inspected(index: int, **changes: Any) -> Run:
    body = sim.document(index)
    inventory = {**body.pop("inventory"), **changes}
    hooks = {"validate-interfaces": ValidateInterfacesHook(), "ports": PortsHook(), "rack": rack_hook()()}
    return run_objects(hooks, inventory, body)


def test_the_hook_of_the_guide_notes_the_rack() -> None:
    result = inspected(81)
    assert result.node.extra == {"rack": "r0002"}
    assert "leaf1-r0002.sim.example" in result.notes[-1].message


def test_the_hook_of_the_guide_refuses_an_inventory_without_lldp() -> None:
    interfaces = [{**nic, "lldp": None} for nic in sim.document(81)["inventory"]["interfaces"]]
    with pytest.raises(HookError, match="no switch announced its name") as info:
        inspected(81, interfaces=interfaces)
    assert info.value.reason is Reason.INVALID_INVENTORY


def test_the_guide_shows_how_to_change_ports() -> None:
    result = inspected(81)
    exec(compile(blocks("python")[1], "example.py", "exec"), {"task": result.context})
    assert {port.physical_network for port in result.ports().values()} == {"rack-network"}


def test_the_guide_shows_another_rule_for_physical_networks() -> None:
    module: dict[str, Any] = {"__name__": "by_switch"}
    exec(compile(blocks("python")[-1], "by_switch.py", "exec"), module)
    body = sim.document(81)
    inventory = body.pop("inventory")
    hooks = {
        "validate-interfaces": ValidateInterfacesHook(),
        "ports": PortsHook(),
        "parse-lldp": ParseLldpHook(),
        "by-switch": module["BySwitch"](),
    }
    result = run_objects(hooks, inventory, body)
    assert {port.physical_network for port in result.ports().values()} == {"net-leaf1-r0002.sim.example"}
