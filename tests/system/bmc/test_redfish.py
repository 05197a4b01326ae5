"""The Redfish driver against sushy-tools' emulator: power, NICs, hardware."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason
from tests.support.faulty_proxy import FaultyProxy, amended, resource
from tests.support.redfish import Emulator, emulator, mac, node_at, self_signed, system_uuid
from tests.system.bmc.conftest import MACHINES, MakeBmc


def test_the_power_is_cut_also_if_the_machine_is_said_to_be_off(rack: Emulator, make_bmc: MakeBmc) -> None:
    bmc, node = make_bmc(), node_at(rack.url, 1)
    bmc.set_power(node, Power.OFF)
    before = rack.resets(1)
    bmc.set_power(node, Power.OFF)
    assert rack.resets(1) == before
    bmc.force_off(node)
    assert rack.resets(1)[len(before) :] == ["ForceOff"]
    assert bmc.get_power(node) is Power.OFF


def test_a_boot_device_that_redfish_does_not_know_is_refused(rack: Emulator, make_bmc: MakeBmc) -> None:
    with pytest.raises(BmcError, match="boot_device") as caught:
        make_bmc().set_boot_device(node_at(rack.url, 3), BootDevice.WANBOOT, persistent=True)
    assert not caught.value.transient


def test_a_machine_that_is_not_there_is_a_permanent_error(rack: Emulator, make_bmc: MakeBmc) -> None:
    node = node_at(rack.url, 0, redfish_system_id="/redfish/v1/Systems/none-such")
    with pytest.raises(BmcError, match="HTTP 404") as caught:
        make_bmc().get_power(node)
    assert not caught.value.transient


def test_the_nics_are_known_before_the_first_boot(rack: Emulator, make_bmc: MakeBmc) -> None:
    assert [nic.mac for nic in make_bmc().nics(node_at(rack.url, 5))] == [mac(5), mac(5, 1)]


def test_the_hardware_has_the_shape_of_the_ramdisks_inventory(rack: Emulator, make_bmc: MakeBmc) -> None:
    inventory = make_bmc().inventory(node_at(rack.url, 6))
    assert [nic["mac_address"] for nic in inventory["interfaces"]] == [mac(6), mac(6, 1)]
    assert inventory["cpu"] == {"count": 32, "architecture": "x86_64", "model_name": "Xeon", "socket_count": 2}
    assert inventory["memory"] == {"total": 96 * 1024**3, "physical_mb": 96 * 1024}
    assert [disk["size"] for disk in inventory["disks"]] == [899527000000, 899527000000]
    assert inventory["system_vendor"]["firmware"]["version"] == "2.19.1"
    assert inventory["boot"] == {"current_boot_mode": "uefi"}
    assert inventory["bmc_address"] == "127.0.0.1"


def test_a_bmc_that_can_only_cycle_the_power_is_not_asked_to(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    bmc, node = make_bmc(), node_at(proxy.url, 41)
    bmc.set_power(node, Power.ON)
    before = rack.resets(41)

    def poor(system: dict[str, Any]) -> None:
        reset = system["Actions"]["#ComputerSystem.Reset"]
        reset["ResetType@Redfish.AllowableValues"] = ["On", "ForceOff", "PowerCycle"]

    proxy.will(amended(poor), times=100, method="GET", path=f"Systems/{system_uuid(41)}")
    with pytest.raises(BmcError, match="ForceRestart") as caught:
        bmc.reboot(node)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)
    assert rack.resets(41) == before


def test_the_speed_of_nics_and_the_mac_of_the_bmc_are_known_where_it_says_them(
    proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    own = "/redfish/v1/Managers/own/EthernetInterfaces"
    there = {"@odata.id": f"{own}/1", "Id": "1", "Name": "1", "MACAddress": "AA:BB:CC:DD:EE:FF"}
    nic = f"{system_uuid(42)}/EthernetInterfaces/{mac(42, 1)}"
    proxy.will(amended(lambda found: found.update(SpeedMbps=25000)), times=9, path=nic)
    proxy.will(resource(there), times=9, path=f"{own}/1")
    members = {"@odata.id": own, "Name": "all", "Members": [{"@odata.id": f"{own}/1"}]}
    proxy.will(resource(members), times=9, path=own)
    proxy.will(amended(lambda found: found.update(EthernetInterfaces={"@odata.id": own})), times=9, path="/Managers/")
    inventory = make_bmc().inventory(node_at(proxy.url, 42))
    assert [one.get("speed_mbps") for one in inventory["interfaces"]] == [None, 25000]
    assert inventory["bmc_mac"] == "aa:bb:cc:dd:ee:ff"


def test_tls_is_as_new_as_the_node_wants_it(tmp_path: Path, make_bmc: MakeBmc) -> None:
    certificate, key = self_signed(tmp_path)
    trusted = {"redfish_verify_ca": str(certificate)}
    wanted = trusted | {"redfish_tls_minimum_version": "1.2", "redfish_tls_ciphers": "ECDHE+AESGCM"}
    with emulator(tmp_path / "tls", machines=1, certificate=(certificate, key)) as running:  # it speaks TLS 1.2 alone
        assert make_bmc().get_power(node_at(running.url, **wanted)) is Power.OFF
        with pytest.raises(BmcError, match="not trusted"):
            make_bmc().get_power(node_at(running.url, **wanted | {"redfish_verify_ca": True}))
        with pytest.raises(BmcError, match="TLS handshake failed"):
            make_bmc().get_power(node_at(running.url, **trusted, redfish_tls_minimum_version="1.3"))


def test_dozens_of_machines_at_once(rack: Emulator, make_bmc: MakeBmc) -> None:
    bmc = make_bmc(timeout=20.0)
    nodes = [node_at(rack.url, number) for number in range(8, MACHINES)]

    def cycle(node) -> Power:  # type: ignore[no-untyped-def]
        bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
        bmc.set_power(node, Power.ON)
        return bmc.get_power(node)

    with ThreadPoolExecutor(10) as threads:
        assert set(threads.map(cycle, nodes)) == {Power.ON}
    assert {rack.system(number)["PowerState"] for number in (8, 20, MACHINES - 1)} == {"On"}


def test_sushy_is_imported_with_the_first_call_only() -> None:
    program = (
        "import sys; from ferroscope.runtime.externals import build_drivers; from ferroscope.config.options import *;"
        "from ferroscope.core.model import Node;"
        "drivers = build_drivers(Settings(drivers=DriverSettings(enabled=('redfish', 'ipmi'))));"
        "assert drivers['redfish'].validate(Node(uuid='x', driver='redfish'));"
        "print(sorted({'sushy', 'requests', 'pyghmi', 'eventlet'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
