"""Which system is behind a BMC's address: one of several, none for now, a portal, or that of another machine.

DHCP may give a BMC's address to another BMC, and a blade may be plugged into another bay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.core.virtual_media import Image, MediaDevice
from ferroscope.hardware import machine_identity
from ferroscope_client.core.reasons import Reason
from tests.fast.bmc.conftest import hurried
from tests.support.processes import PATIENCE
from tests.support.scripted_redfish import SESSIONS, Answer, ScriptedBmc, answer, collection, link

PAGE = b"<html>Please log in to the network</html>"
PATHS = [f"/redfish/v1/Systems/{number}" for number in (1, 2, 3)]
OURS = {"SerialNumber": "CZJ9140ABC", "UUID": "4c4c4544-0034-5a10-8056-b4c04f4a4e32"}
OTHERS = {"SerialNumber": "CZJ9140XYZ", "UUID": "4c4c4544-0038-3510-8051-c3c04f385932"}
IMAGE = Image("https://boot.example.com/ramdisk.iso", "")
ACCOUNTS = "/redfish/v1/AccountService/Accounts"
CALLS: dict[str, Callable[[RedfishBmc, Node], object]] = {
    "get_power": lambda driver, node: driver.get_power(node),
    "set_power": lambda driver, node: driver.set_power(node, Power.OFF),
    "force_off": lambda driver, node: driver.force_off(node),
    "reboot": lambda driver, node: driver.reboot(node),
    "soft_power_off": lambda driver, node: driver.soft_power_off(node),
    "soft_reboot": lambda driver, node: driver.soft_reboot(node),
    "set_boot_device": lambda driver, node: driver.set_boot_device(node, BootDevice.PXE, persistent=True),
    "clear_boot_device": lambda driver, node: driver.clear_boot_device(node, BootDevice.PXE),
    "insert_ramdisk": lambda driver, node: driver.insert_ramdisk(node, IMAGE),
    "eject_ramdisk": lambda driver, node: driver.eject_ramdisk(node, IMAGE),
    "attach_medium": lambda driver, node: driver.attach_medium(node, MediaDevice.CDROM, IMAGE.iso),
    "detach_media": lambda driver, node: driver.detach_media(node, []),
    "inventory": lambda driver, node: driver.inventory(node),
    "nics": lambda driver, node: driver.nics(node),
    "health": lambda driver, node: driver.health(node),
}


@pytest.mark.parametrize(
    ("given", "transient", "reason", "words"),
    [
        (answer(200, PAGE), True, Reason.BMC_NOT_READY, "a web page instead of its systems"),
        (answer(200, b"\n"), True, Reason.BMC_NOT_READY, "empty instead of its systems"),
        (answer(200, b"[]"), True, Reason.BMC_NOT_READY, "not a JSON object instead of its systems"),
        (
            answer(302, PAGE, Location="https://portal.example.com/login"),
            False,
            Reason.BMC_REFUSED,
            "redirects to another host",
        ),
        (answer(403), False, Reason.BMC_PRIVILEGES, "lacks the privilege"),
        (answer(511, PAGE), False, Reason.BMC_REFUSED, "HTTP 511"),
        (answer(404), True, Reason.BMC_SYSTEM_UNCLEAR, "lists no system"),
        (answer(200, {"Name": "Systems", "Members": []}), True, Reason.BMC_SYSTEM_UNCLEAR, "lists no system"),
    ],
    ids=["page", "empty", "array", "portal", "privilege", "511", "404", "none"],
)
def test_what_is_there_instead_of_the_systems_is_said(
    bmc: ScriptedBmc, given: Answer, transient: bool, reason: Reason, words: str
) -> None:
    with closing(hurried(waits=6)) as driver:
        assert driver.get_power(bmc.node()) is Power.ON
        for path in ("/Systems", "/login"):  # a portal redirects all
            bmc.will(given, at=path, times=1000)
        with pytest.raises(BmcError, match=words) as caught:
            driver.get_power(bmc.node())
        assert (caught.value.transient, caught.value.reason) == (transient, reason)
        bmc.first.clear()
        assert hurried().get_power(bmc.node()) is Power.ON


def test_calls_for_different_systems_are_made_at_the_same_time(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.documents["/redfish/v1/"] |= {"Links": {"Sessions": link("/redfish/v1/SessionService/Sessions")}}
    bmc.documents["/redfish/v1/Systems"] = collection(*PATHS)
    bmc.sessions = set()
    meeting = threading.Barrier(len(PATHS), timeout=PATIENCE)

    def together(system: dict[str, Any]) -> Any:
        meeting.wait()
        return answer(200, system)

    for path in PATHS:
        system = {**bmc.system, "Id": path[-1]}
        bmc.documents[path] = system
        bmc.upon["GET", path] = lambda _body, system=system: together(system)  # type: ignore[misc]
    nodes = [bmc.node(redfish_system_id=path) for path in PATHS]
    with ThreadPoolExecutor(len(PATHS)) as pool:
        for _ in range(3):
            assert list(pool.map(driver.get_power, nodes)) == [Power.ON] * len(PATHS)
    assert len(bmc.asked("POST", "Sessions")) == len(PATHS)


def known_node(bmc: ScriptedBmc, driver: RedfishBmc, **more: Any) -> Node:
    """Return the node of the machine that is there now, as the service knows it."""
    node = bmc.node(**more)
    machine_identity.remember_behind_bmc(node, driver.machine(node))
    return node


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_is_done_to_another_machine(
    bmc: ScriptedBmc, driver: RedfishBmc, call: Callable[[RedfishBmc, Node], object]
) -> None:
    bmc.system.update(OURS)
    node = known_node(bmc, driver)
    bmc.system.update(OTHERS)
    with pytest.raises(BmcError, match="serial number CZJ9140XYZ, was CZJ9140ABC") as caught:
        call(driver, node)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_OTHER_MACHINE)
    assert caught.value.not_done
    assert [path for method, path, _body in bmc.seen if method != "GET" and path != SESSIONS] == []


@pytest.mark.parametrize("password", [None, "a-new-Passw0rd"], ids=["login", "change"])
def test_the_password_of_another_machine_is_neither_changed_nor_taken_for_ours(
    bmc: ScriptedBmc, driver: RedfishBmc, password: str | None
) -> None:
    """All have the same one, so that the login succeeds."""
    bmc.sessions = set()
    bmc.documents["/redfish/v1/"]["AccountService"] = link("/redfish/v1/AccountService")
    bmc.has("/redfish/v1/AccountService", Accounts=link(ACCOUNTS))
    bmc.has(ACCOUNTS, collection(f"{ACCOUNTS}/1"))
    bmc.has(f"{ACCOUNTS}/1", UserName="operator")
    bmc.system.update(OURS)
    node = known_node(bmc, driver)
    bmc.system.update(OTHERS)
    with pytest.raises(BmcError) as caught:
        driver.log_in(node) if password is None else driver.set_password(node, password)
    assert caught.value.reason is Reason.BMC_OTHER_MACHINE
    assert bmc.asked("PATCH") == []


def test_an_account_that_may_only_change_its_password_changes_it(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.system.update(OURS)
    node = known_node(bmc, driver)
    demanded = {
        "error": {
            "@Message.ExtendedInfo": [
                {"MessageId": "Base.1.8.PasswordChangeRequired", "MessageArgs": [f"{ACCOUNTS}/1"]},
            ]
        }
    }
    bmc.sessions = set()
    bmc.has(f"{ACCOUNTS}/1", UserName="operator")
    bmc.will(answer(403, demanded), at="/Systems", times=1)
    bmc.will(answer(403, demanded), at="/AccountService", times=1)
    driver.set_password(node, "a-new-Passw0rd")
    assert bmc.asked("PATCH", ACCOUNTS) == [{"Password": "a-new-Passw0rd"}]


@pytest.mark.parametrize(
    "now",
    [
        {"SerialNumber": None, "UUID": None},
        {"SerialNumber": "", "UUID": "00000000-0000-0000-0000-000000000000"},
        {"SerialNumber": "To be filled by O.E.M.", "UUID": OURS["UUID"]},
        {"UUID": "44454c4c-3400-105a-8056-b4c04f4a4e32"},
        {"UUID": OTHERS["UUID"]},
        {"SerialNumber": OTHERS["SerialNumber"]},
    ],
    ids=["restarting", "empty", "placeholder", "swapped", "new-uuid", "new-serial"],
)
def test_a_bmc_that_says_less_or_half_of_it_otherwise_is_still_that_of_the_machine(
    bmc: ScriptedBmc, driver: RedfishBmc, now: dict[str, Any]
) -> None:
    bmc.system.update(OURS)
    node = known_node(bmc, driver)
    bmc.system.update(now)
    driver.set_power(node, Power.OFF)
    assert bmc.asked("POST", "ComputerSystem.Reset") == [{"ResetType": "ForceOff"}]


def test_a_node_that_got_another_address_or_nothing_that_tells_machines_apart_is_not_refused(
    bmc: ScriptedBmc, driver: RedfishBmc
) -> None:
    bmc.system.update(OURS)
    node = known_node(bmc, driver)
    bmc.system.update(OTHERS)
    node.driver_info["redfish_address"] = bmc.url.replace("127.0.0.1", "127.0.0.2")
    assert machine_identity.behind_bmc(node) is None
    bmc.system.update({"SerialNumber": "", "UUID": None})
    node = known_node(bmc, driver)
    assert machine_identity.behind_bmc(node) is None
    assert driver.get_power(node) is Power.ON
