"""Options of hooks: a worker with wrong ones does not start, and says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.options import InspectorSettings
from ferroscope.hooks import loader
from ferroscope.hooks.base import HookSetupError
from tests.fast.hooks.runs import installed, machine, run
from tests.support.rows import each


def refusal(hook: str, **options: Any) -> str:
    with pytest.raises(HookSetupError) as info:
        loader.load(InspectorSettings(hooks=("validate-interfaces", hook), **options), installed())
    return str(info.value)


def settings(tmp_path: Path, text: str) -> InspectorSettings:
    file = tmp_path / "ferroscope.conf"
    file.write_text(f"[inspector]\n{text}\n", encoding="utf-8")
    return load([str(file)]).inspector


@each(
    ("entry", "words"),
    [
        ("192.0.2.0/24", "'192.0.2.0/24'"),
        ("192.0.2.0/24:", "'192.0.2.0/24:'"),
        ("192.0.2.1/24:net", "host bits set"),
        ("rack:net", "IPv4 or IPv6"),
    ],
)
def test_a_network_that_is_none_is_refused(entry: str, words: str) -> None:
    message = refusal("physical-network", physical_network_cidr_map=(entry,))
    assert words in message
    assert "192.0.2.0/24:net_a" in message


@each(
    "alias",
    [
        "gpu",
        "{}",
        "[]",
        '{"vendor_id": "10de"}',
        '{"vendor_id": 10, "product_id": "1", "name": "a"}',
        '{"vendor_id": "10de", "product_id": "1", "name": "a", "numa_policy": "x"}',
        '{"vendor_id": "10de", "product_id": "1", "name": "a:b"}',
    ],
)
def test_an_alias_that_is_none_is_refused(alias: str) -> None:
    assert "pci_device_alias" in refusal("pci-devices", pci_device_alias=(alias,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("]", "cannot read"),
        ("devices: []", "no list 'pci_devices'"),
        ("pci_devices: []", "no list 'pci_devices'"),
        ("pci_devices: [{vendor_id: 10de}]", "device number 1"),
        ("pci_devices: [{vendor_id: '10de', device_id: 1234}]", "device number 1"),
        ("pci_devices: [x]", "device number 1"),
    ],
)
def test_a_file_of_accelerators_that_is_none_is_refused(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "known.yaml"
    file.write_text(text, encoding="utf-8")
    assert words in refusal("accelerators", known_accelerators=str(file))


def test_a_capability_that_could_set_others_is_refused() -> None:
    assert "cpu_capabilities" in refusal("cpu-capabilities", cpu_capabilities={"aes": "a,b"})


def test_options_of_hooks_that_are_not_used_are_not_looked_at() -> None:
    loader.load(InspectorSettings(pci_device_alias=("nonsense",)), installed())


def test_accelerators_of_ones_own_take_the_place_of_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "known.yaml"
    file.write_text('pci_devices: [{vendor_id: "1DA3", device_id: "1060", type: AI}]', encoding="utf-8")
    devices = [
        {"vendor_id": "1da3", "product_id": "1060", "bus": "0000:19:00.0"},
        {"vendor_id": "10de", "product_id": "1eb8", "bus": "0000:1a:00.0"},
    ]
    found = run(["accelerators"], machine(), {"pci_devices": devices}, known_accelerators=str(file))
    assert found.node.properties["accelerators"] == [
        {"vendor_id": "1DA3", "device_id": "1060", "type": "AI", "pci_address": "0000:19:00.0"}
    ]


def test_the_options_are_read_as_the_bare_metal_service_writes_them(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        'pci_device_alias = {"vendor_id": "10de", "product_id": "1eb8", "name": "t4"}\n'
        'pci_device_alias = {"vendor_id": "10de", "product_id": "2236", "name": "a10"}\n'
        "physical_network_cidr_map = 192.0.2.0/24:net_a,2001:db8::/64:net_b\n"
        "cpu_capabilities = aes:cpu_aes,sse2:cpu_sse2\n"
        "extra_hardware_strict = True\n",
    )
    assert len(found.pci_device_alias) == 2
    assert found.physical_network_cidr_map == ("192.0.2.0/24:net_a", "2001:db8::/64:net_b")
    assert found.cpu_capabilities == {"aes": "cpu_aes", "sse2": "cpu_sse2"}
    assert found.extra_hardware_strict is True


@pytest.mark.parametrize(("text", "size"), [("True", 1), ("false", 0), ("5", 5), ("0", 0)])
def test_the_space_for_partitioning_is_a_size_and_was_a_switch(text: str, size: int, tmp_path: Path) -> None:
    assert settings(tmp_path, f"disk_partitioning_spacing = {text}").disk_partitioning_spacing == size


@pytest.mark.parametrize("text", ["-1", "some", "1.5"])
def test_the_space_for_partitioning_is_a_whole_size(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        settings(tmp_path, f"disk_partitioning_spacing = {text}")


@each(
    ("configured", "name"),
    [
        ("validate_interfaces", "validate-interfaces"),
        ("root_disk_selection", "root-device"),
        ("lldp_basic", "parse-lldp"),
    ],
)
def test_older_names_work_with_a_warning(configured: str, name: str) -> None:
    with structlog.testing.capture_logs() as logs:
        (hook,) = loader.load(InspectorSettings(hooks=(configured,)), installed())
    assert hook.name == name
    assert [(entry["log_level"], entry["configured"], entry["hook"]) for entry in logs] == [
        ("warning", configured, name)
    ]
