"""Whole inspections of emulated Redfish machines by the real service: managed boot, network boot, out of band."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import PATIENCE, free_port, until
from tests.support.real_service import Api, service
from tests.support.redfish import Emulator, driver_info, emulator, mac

SECONDS = 60


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Give machines whose power state lags a little, as it does."""
    with emulator(tmp_path_factory.mktemp("machines"), machines=7, lag=0.3) as running:
        yield running


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, iso: str) -> Iterator[Api]:
    """Give the service, with that image for every machine that boots by virtual media."""
    port = free_port()
    more = f"""
[drivers]
allow_http_passwords = true
bmc_networks = 127.0.0.0/8
enabled = redfish, ipmi
command_timeout = 5
[inspector]
timeout = 30
ramdisk_iso = {iso}
callback_endpoint_override = http://127.0.0.1:{port}
extra_kernel_params = console=ttyS0
collect_out_of_band = True
"""
    with service(tmp_path_factory.mktemp("service"), more, port=port) as running:
        running.version = "1.84"
        yield running


def enrol(api: Api, machines: Emulator, number: int, **fields: Any) -> str:
    name = f"machine-{number}"
    body = {"name": name, "driver": "redfish", "driver_info": driver_info(machines.url, number)}
    api.call("POST", "/v1/nodes", body | fields)
    api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "manage"})
    reach(api, name, "manageable")
    return name


def reach(api: Api, name: str, state: str) -> dict[str, Any]:
    last: dict[str, Any] = {}

    def reached() -> bool:
        last.update(api.node(name))
        return last["provision_state"] == state

    assert until(reached, seconds=SECONDS), (last["provision_state"], last["last_error"])
    return last


def inspect(api: Api, name: str) -> None:
    api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})


def told(machines: Emulator, number: int) -> str:
    """Return the query of the callback URL on the disk in the machine's virtual drive, "" if there is no disk."""
    image = machines.media(number, "Floppy")["Image"]
    if not image:
        return ""
    with urllib.request.urlopen(image, timeout=PATIENCE) as answer:  # the service's own URL
        found = re.search(
            rb"ipa-inspection-callback-url=\S+/v1/continue_inspection(\?secret=[\w-]{40,})", answer.read()
        )
    assert found is not None
    return found[1].decode()


def call_back(api: Api, number: int, machines: Emulator | None = None) -> None:
    inventory = {
        "interfaces": [{"name": "eth0", "mac_address": mac(number), "ipv4_address": "192.0.2.7", "lldp": []}],
        "cpu": {"architecture": "x86_64", "count": 64, "model_name": "Xeon"},
        "memory": {"physical_mb": 98304, "total": 103079215104},
        "disks": [],
        "boot": {"pxe_interface": mac(number)},
    }
    query = told(machines, number) if machines is not None else ""
    api.call("POST", f"/v1/continue_inspection{query}", {"inventory": inventory})


def data(api: Api, name: str) -> dict[str, Any]:
    return api.call("GET", f"/v1/nodes/{name}/inventory")


def test_managed_boot_by_virtual_media_from_start_to_finish(api: Api, machines: Emulator, iso: str) -> None:
    name = enrol(api, machines, 0)
    inspect(api, name)
    node = reach(api, name, "inspect wait")
    assert node["driver_internal_info"]["inspector_manage_boot"] is True
    assert (machines.media(0, "Cd")["Image"], machines.media(0, "Cd")["Inserted"]) == (iso, True)
    image = machines.media(0, "Floppy")["Image"]
    assert re.search(f"/v1/ramdisk_parameters/{node['uuid']}/[0-9a-f]{{32}}/disk.img$", image)
    assert image.split("/")[-2] not in str(node)
    assert machines.system(0)["Boot"]["BootSourceOverrideTarget"] == "Cd"
    assert machines.system(0)["PowerState"] == "On"
    ports = api.call("GET", f"/v1/ports?node={node['uuid']}")["ports"]
    assert {port["address"] for port in ports} == {mac(0), mac(0, 1)}
    call_back(api, 0, machines)
    reach(api, name, "manageable")
    assert until(lambda: machines.system(0)["PowerState"] == "Off")
    assert not machines.media(0, "Cd")["Inserted"]
    assert not machines.media(0, "Floppy")["Inserted"]


def test_out_of_band_inspection_needs_no_ramdisk_and_no_reboot(api: Api, machines: Emulator) -> None:
    name = enrol(api, machines, 4, inspect_interface="redfish")
    machines.ask(
        f"/redfish/v1/Systems/{machines.system(4)['Id']}/Actions/ComputerSystem.Reset", "POST", {"ResetType": "On"}
    )
    assert until(lambda: machines.system(4)["PowerState"] == "On")
    inspect(api, name)
    assert until(lambda: api.node(name)["inspection_finished_at"] is not None, seconds=SECONDS)
    node = reach(api, name, "manageable")
    assert node["properties"]["cpu_arch"] == "x86_64"
    stored = data(api, name)
    assert stored["inventory"]["memory"]["physical_mb"] == 98304
    assert set(stored["plugin_data"]["hardware"]["sources"].values()) == {"redfish"}
    health = stored["plugin_data"]["out_of_band"]["health"]
    assert (health["state"], health["complete"], len(health["parts"])) == ("ok", True, 2)
    assert (node["hardware"]["health"], node["hardware"]["firmware"]) == ("ok", "2.19.1")
    versions = {one["component"]: one["version"] for one in node["hardware"]["components"]}
    assert versions == {"bmc": "1.00", "disk": "100A", "controller": "1.0.0.7"}
    ports = api.call("GET", f"/v1/ports?node={node['uuid']}")["ports"]
    assert {port["address"] for port in ports} == {mac(4), mac(4, 1)}
    assert machines.system(4)["PowerState"] == "On"
