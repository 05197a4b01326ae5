"""What the machines call back with: inventories of their own or one given, spoiled by outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope_client.core.mac_addresses import normalized_mac
from ferroscope_sim.bodies import RAMDISK_ERROR, Bodies
from ferroscope_sim.inventory import bmc_address, bmc_mac, generate, macs, pxe_mac
from ferroscope_sim.model import FleetSettings, SimMember
from ferroscope_sim.outcomes import TABLE

BARE = {
    "interfaces": [
        {"name": "eth0", "mac_address": "AA:BB:CC:00:00:01"},
        {"name": "eth1", "mac_address": "aa:bb:cc:00:00:02"},
        {"name": "bond0", "mac_address": "aa:bb:cc:00:00:02"},
    ],
    "cpu": {"architecture": "aarch64"},
    "memory": {"physical_mb": 4096},
    "boot": {"pxe_interface": "01-aa-bb-cc-00-00-02"},
    "bmc_address": "192.0.2.1",
    "bmc_v6address": None,
    "bmc_mac": "AA:BB:CC:00:00:99",
    "hostname": "192.0.2.10",
}


def bodies_of(name: str, number: int = 5, **settings: object) -> tuple[bytes, ...]:
    return Bodies(FleetSettings(**settings)).of(SimMember(name, number))  # type: ignore[arg-type]


def body_of(name: str, **settings: object) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(bodies_of(name, **settings)[0])
    return document


def test_a_machine_without_fault_posts_its_own_inventory() -> None:
    assert bodies_of("sim-0005") == (generate(5),)
    assert bodies_of("sim-0005", inventory_size=40_000) == (generate(5, size=40_000),)


def test_every_outcome_that_calls_back_has_a_body() -> None:
    for outcome in TABLE:
        assert bool(bodies_of(f"sim-{outcome.name}-1")) is outcome.calls_back, outcome.name


def test_only_what_the_outcome_names_is_spoiled() -> None:
    plain = body_of("sim-0005")
    error = body_of("sim-ramdisk-error-1")
    assert error.pop("error") == RAMDISK_ERROR
    assert plain.pop("error") is None
    assert error == plain
    inventory = plain["inventory"]
    assert body_of("sim-no-nics-1")["inventory"] == inventory | {"interfaces": []}
    assert body_of("sim-no-memory-1")["inventory"] == {key: inventory[key] for key in inventory if key != "memory"}
    cpu = {key: value for key, value in inventory["cpu"].items() if key != "architecture"}
    assert body_of("sim-no-arch-1")["inventory"] == inventory | {"cpu": cpu}


def test_a_bad_mac_is_never_the_one_that_boots() -> None:
    for number in range(1, 40):
        document = msgspec.json.decode(bodies_of("sim-bad-mac-1", number)[0])
        found = [interface["mac_address"] for interface in document["inventory"]["interfaces"]]
        assert found.count("no-mac") == 1
        assert pxe_mac(number) in found


def test_a_machine_with_unknown_macs_has_no_enrolled_address() -> None:
    document = body_of("sim-unknown-macs-1")
    found = {interface["mac_address"] for interface in document["inventory"]["interfaces"]}
    assert not found & set(macs(5))
    assert document["inventory"]["bmc_address"] != bmc_address(5)


def test_bad_json_is_none_and_deep_and_huge_bodies_are() -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(bodies_of("sim-bad-json-1")[0])
    (deep,) = bodies_of("sim-deep-json-1")
    assert deep.count(b"[") > 1000
    (huge,) = bodies_of("sim-huge-body-1")
    assert len(huge) > 16 * 1024 * 1024
    assert isinstance(msgspec.json.decode(huge), dict)


def test_a_repeated_callback_has_the_same_content_and_a_conflicting_one_another() -> None:
    assert bodies_of("sim-repeat-1") == (generate(5),) * 3
    first, second = bodies_of("sim-conflict-1")
    assert first == generate(5)
    assert (
        msgspec.json.decode(second)["inventory"]["interfaces"] == msgspec.json.decode(first)["inventory"]["interfaces"]
    )
    assert second != first


def write(tmp_path: Path, document: object) -> str:
    path = tmp_path / "given.json"
    path.write_bytes(msgspec.json.encode(document))
    return str(path)


def test_a_given_inventory_is_patched_with_the_machines_addresses(tmp_path: Path) -> None:
    inventory = body_of("sim-0005", inventory_file=write(tmp_path, BARE))["inventory"]
    eth0, eth1, bond0 = (interface["mac_address"] for interface in inventory["interfaces"])
    assert eth1 == bond0 == pxe_mac(5)
    assert eth0[:-2] == pxe_mac(5)[:-2]
    assert eth0 != eth1
    assert normalized_mac(inventory["boot"]["pxe_interface"]) == pxe_mac(5)
    assert inventory["boot"]["pxe_interface"].startswith("01-")
    assert inventory["bmc_address"] == bmc_address(5)
    assert inventory["bmc_v6address"] is None
    assert inventory["bmc_mac"] == bmc_mac(5)
    assert inventory["hostname"] == "192.0.2.10"
    assert inventory["cpu"] == BARE["cpu"]


def test_a_given_inventory_keeps_its_plugin_data_consistent(tmp_path: Path) -> None:
    plugin_data = {"macs": ["aa:bb:cc:00:00:02"], "boot_interface": "AA-BB-CC-00-00-02", "error": None}
    body = body_of("sim-0005", inventory_file=write(tmp_path, {"inventory": BARE, **plugin_data}))
    assert body["macs"] == [pxe_mac(5)]
    assert normalized_mac(body["boot_interface"]) == pxe_mac(5)
    stored = body_of("sim-0005", inventory_file=write(tmp_path, {"inventory": BARE, "plugin_data": plugin_data}))
    assert stored == body


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b"\xff", b'{"interfaces": []}', b'{"inventory": {"interfaces": [{"mac_address": 1}]}}'],
)
def test_a_file_without_an_inventory_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"bad\.json does not contain an inventory"):
        Bodies(FleetSettings(inventory_file=str(path)))
