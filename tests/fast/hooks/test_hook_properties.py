"""``ramdisk-error``, ``architecture`` and ``memory``: one value each, or a reason."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.core.model import Severity
from ferroscope.hooks.base import HookError
from ferroscope_client.core.reasons import Reason
from tests.fast.hooks.runs import machine, run
from tests.support.rows import each


def refusal(hook: str, inventory: Any, plugin_data: Any = None) -> HookError:
    with pytest.raises(HookError) as info:
        run([hook], inventory, plugin_data)
    return info.value


def test_the_error_of_the_ramdisk_is_the_reason() -> None:
    error = refusal("ramdisk-error", machine(), {"error": "no disks found\nlook at the cable"})
    assert error.reason is Reason.RAMDISK_ERROR
    assert error.message == "Ramdisk reported error: no disks found\nlook at the cable"


@each("value", [{"type": "X"}, ["a", {"b": 1}], 17, True])
def test_an_error_of_any_type_is_reported(value: object) -> None:
    error = refusal("ramdisk-error", machine(), {"error": value})
    assert error.reason is Reason.RAMDISK_ERROR
    assert repr(value) in error.message


def test_an_endless_error_is_cut_and_control_characters_are_taken_out() -> None:
    error = refusal("ramdisk-error", machine(), {"error": "a\x00b\x1b[31m" + "x" * 1_000_000})
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[31mxxx" in error.message
    assert len(error.message) < 2100


def test_the_architecture_becomes_a_property() -> None:
    result = run(["architecture"], machine(cpu={"architecture": "aarch64"}))
    assert result.node.properties == {"old": 1, "cpu_arch": "aarch64"}


def test_the_architecture_is_taken_from_what_is_there() -> None:
    collected = [["system", "kernel", "arch", "aarch64"], ["cpu", "physical_0", "cores", "8"]]
    for data in ({"data": collected}, {"extra": {"system": {"kernel": {"arch": "aarch64"}}}}):
        result = run(["architecture"], machine(cpu={"architecture": None}), data)
        assert result.node.properties["cpu_arch"] == "aarch64"
        assert [note.severity for note in result.notes] == [Severity.WARNING]


def test_an_inventory_without_cpu_or_memory_is_refused() -> None:
    for hook in ("architecture", "memory"):
        assert refusal(hook, {}).reason is Reason.INVALID_INVENTORY


@each("size", [1, 65536, 2**40])
def test_the_memory_size_becomes_a_property(size: int) -> None:
    result = run(["memory"], machine(memory={"physical_mb": size}))
    assert result.node.properties == {"old": 1, "memory_mb": size}


@each(
    "memory",
    [None, {}, [], 65536, {"total": 1}, {"total": "many"}, {"total": True}, {"total": 2**70}, {"total": -(2**30)}]
    + [{"physical_mb": value} for value in (None, 0, -1, True, "", "nan", 0.5, [], 2**40 + 1, 10**400)],
)
def test_an_inventory_without_a_memory_size_is_refused(memory: object) -> None:
    error = refusal("memory", machine(memory=memory))
    assert error.reason is Reason.INVALID_INVENTORY
    assert "memory.physical_mb" in error.message
    assert len(error.message) < 300


DIMMS = {"dmi": {"memory": {"devices": [{"Size": "32 GB"}, {"Size": "No Module Installed"}, {"Size": "32768 MB"}]}}}
BANKS = [["memory", f"bank:{slot}", "size", str(32 * 2**30)] for slot in range(2)]


@each(
    ("memory", "plugin_data", "size"),
    [
        ({"physical_mb": "65536"}, {}, 65536),
        ({"physical_mb": 65536.0, "total": 1}, {}, 65536),
        ({"physical_mb": None, "total": 67377414144}, {}, 64256),
        ({"physical_mb": 0, "total": "67377414144"}, {}, 64256),
        ({"total": 67377414144.0}, {"dmi": None, "data": "x", "extra": []}, 64256),
        ({"physical_mb": None, "total": 67377414144}, DIMMS, 65536),
        (None, DIMMS, 65536),
        ({"physical_mb": None}, {"data": BANKS}, 65536),
        ({"physical_mb": None}, {"extra": {"memory": {"bank:0": {"size": 2**36}}}}, 65536),
        ({"total": 67377414144}, {"data": [["memory", "total", "size", 2**36]]}, 65536),
        ({"total": 67377414144}, {"extra": {"memory": {"total": {"size": "68719476736"}}}}, 65536),
    ],
)
def test_the_memory_size_is_taken_from_what_is_there(memory: object, plugin_data: Any, size: int) -> None:
    """``physical_mb`` is null where dmidecode is missing or its output is odd; see baremetal-operator#818."""
    result = run(["memory"], machine(memory=memory), plugin_data)
    assert result.node.properties["memory_mb"] == size
    told = isinstance(memory, dict) and str(memory.get("physical_mb"))[:5] == "65536"
    assert [note.step for note in result.notes] == ([] if told else ["memory"])


@each("as_text", [False, True])
def test_numbers_may_be_written_as_ironic_inspector_wrote_them(as_text: bool) -> None:
    disk = {"name": "/dev/sda", "size": 100 << 30}
    inventory = machine(cpu={"architecture": "x86_64", "count": 8}, memory={"physical_mb": 4096}, disks=[disk])
    found = run(["cpus", "memory", "root-device"], inventory, {"root_disk": disk}, properties_as_text=as_text)
    wanted = {"cpus": 8, "memory_mb": 4096, "local_gb": 99}
    assert {name: found.node.properties[name] for name in wanted} == (
        {name: str(value) for name, value in wanted.items()} if as_text else wanted
    )
    assert found.plugin_data["local_gb"] == 99
