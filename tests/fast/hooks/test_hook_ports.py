"""``ports``: what becomes of the node's ports, for every ``add_ports`` and ``keep_ports``."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.core.model import Port, Severity
from ferroscope.hooks.base import HookError
from ferroscope.hooks.ports import PortsHook
from ferroscope_client.core.reasons import Reason
from tests.fast.hooks.runs import ETH0, ETH1, ETH2, NODE, OTHER, Run, machine, port, run, run_objects
from tests.support.rows import each

HOOKS = ["validate-interfaces", "ports"]
STRANGE = "aa:bb:cc:00:00:77"


def inspect(*ports: Port, inventory: Any = None, elsewhere: dict[str, str] | None = None, **options: Any) -> Run:
    return run(HOOKS, inventory or machine(), ports=ports, elsewhere=elsewhere, **options)


def pxe(result: Run) -> dict[str, bool]:
    return {mac: found.pxe_enabled for mac, found in result.ports().items()}


@each(
    ("add_ports", "expected"),
    [
        ("all", {ETH0: True, ETH1: False, ETH2: False}),
        ("active", {ETH0: True, ETH1: False}),
        ("pxe", {ETH0: True}),
        ("disabled", {}),
    ],
)
def test_add_ports_says_which_ports_are_added(add_ports: str, expected: dict[str, bool]) -> None:
    result = inspect(add_ports=add_ports)
    assert pxe(result) == expected
    assert {added.node for added in result.context.port_changes.added} <= {NODE}
    assert len({added.uuid for added in result.context.port_changes.added}) == len(expected)


def test_valid_interfaces_tell_whether_their_port_was_added() -> None:
    result = inspect(port(ETH1), add_ports="all", elsewhere={ETH2: OTHER})
    flags = {name: iface["is_added"] for name, iface in result.plugin_data["valid_interfaces"].items()}
    assert flags == {"eth0": True, "eth1": False, "eth2": False}
    assert not any("is_added" in iface for iface in result.plugin_data["all_interfaces"].values())


def test_a_second_inspection_changes_nothing_more() -> None:
    first = inspect(port(STRANGE), add_ports="all", keep_ports="present")
    second = inspect(*first.ports().values(), add_ports="all", keep_ports="present")
    assert second.ports() == first.ports()
    assert second.notes == []


@each(
    ("keep_ports", "kept"),
    [("all", {ETH0, ETH1, STRANGE}), ("present", {ETH0, ETH1}), ("added", {ETH0})],
)
def test_keep_ports_says_which_existing_ports_stay(keep_ports: str, kept: set[str]) -> None:
    result = inspect(port(ETH1), port(STRANGE), keep_ports=keep_ports)
    assert set(result.ports()) == kept
    assert result.context.port_changes.removed == {f"port-{mac}" for mac in {ETH1, STRANGE} - kept}


def test_keep_ports_does_not_depend_on_adding_any() -> None:
    result = inspect(port(ETH0), port(STRANGE), add_ports="disabled", keep_ports="present")
    assert set(result.ports()) == {ETH0}


def test_a_mac_of_another_node_is_a_warning_and_no_port() -> None:
    result = inspect(add_ports="all", elsewhere={ETH1: OTHER})
    assert set(result.ports()) == {ETH0, ETH2}
    (warning,) = (note for note in result.notes if note.severity is Severity.WARNING)
    assert (warning.step, warning.reason) == ("ports", Reason.PORT_CONFLICT)
    assert f"{ETH1} (node {OTHER})" in warning.message
    assert warning.detail == {"elsewhere": {ETH1: OTHER}}


def test_pxe_enabled_stays_with_update_pxe_enabled_off() -> None:
    result = inspect(port(ETH0, pxe_enabled=False), port(ETH1), update_pxe_enabled=False)
    assert pxe(result) == {ETH0: False, ETH1: True}


@each("boot", [None, {"pxe_interface": None}, {"pxe_interface": "eth0"}])
def test_nothing_loses_pxe_where_the_interface_that_booted_is_not_known(boot: object) -> None:
    result = inspect(port(ETH0), port(ETH1, pxe_enabled=False), inventory=machine(boot=boot))
    assert pxe(result) == {ETH0: True, ETH1: False, ETH2: True}


def with_client_id(value: object) -> dict[str, Any]:
    inventory = machine()
    inventory["interfaces"][1]["client_id"] = value
    return inventory


def test_a_client_id_is_updated_without_touching_the_rest() -> None:
    old = port(ETH0, extra={"client-id": "old", "mine": 1})
    result = inspect(old, inventory=with_client_id("new"))
    assert result.ports()[ETH0].extra == {"client-id": "new", "mine": 1}
    assert old.extra == {"client-id": "old", "mine": 1}


@each("value", [None, "", 5, [], {}, "x" * 256, "a\x00b"])
def test_no_client_id_or_a_bad_one_leaves_the_old_one(value: object) -> None:
    result = inspect(port(ETH0, extra={"client-id": "old"}), inventory=with_client_id(value))
    assert result.ports()[ETH0].extra == {"client-id": "old"}
    assert result.context.port_changes.updated == {}


def test_every_change_is_on_the_timeline() -> None:
    result = inspect(port(ETH1), port(STRANGE), keep_ports="present")
    (note,) = result.notes
    assert note.step == "ports"
    assert note.severity is Severity.INFO
    assert note.message == f"ports added {ETH0}; removed {STRANGE}; updated {ETH1}"
    assert note.detail == {"added": [ETH0], "removed": [STRANGE], "updated": [ETH1]}


@each("key", ["all_interfaces", "valid_interfaces"])
@each(
    "value", [None, [], "x", {"eth0": None}, {"eth0": {}}, {"eth0": {"mac_address": 5}}, {"eth0": {"mac_address": "x"}}]
)
def test_plugin_data_that_another_hook_spoilt_are_refused(key: str, value: object) -> None:
    fine = {"eth0": {"mac_address": ETH0, "pxe_enabled": True}}
    data = {"all_interfaces": fine, "valid_interfaces": fine, key: value}
    with pytest.raises(HookError) as info:
        run_objects({"ports": Lenient()}, machine(), data)
    assert info.value.reason is Reason.HOOK_FAILED
    assert key in info.value.message


class Lenient(PortsHook):
    """The hook in a pipeline without the one that it needs."""

    dependencies = ()
