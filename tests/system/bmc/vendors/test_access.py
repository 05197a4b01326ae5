"""Logins, privileges and sessions, with the BMC of each vendor."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import requests

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.core.virtual_media import Image
from ferroscope.remote.deadline import Deadline
from ferroscope.remote.session import BoundedSession
from ferroscope_client.core.reasons import Reason
from tests.support.processes import until
from tests.support.redfish import PASSWORD, self_signed
from tests.support.vendors import ALL
from tests.support.vendors.logins import VIEWER
from tests.support.vendors.personality import Personality
from tests.support.vendors.service import Service, node_of, serving
from tests.system.bmc.conftest import LAX
from tests.system.bmc.vendors.conftest import Unhurried

CHANGES: dict[str, Callable[[RedfishBmc, Node], object]] = {
    "power": lambda bmc, node: bmc.set_power(node, Power.ON),
    "boot device": lambda bmc, node: bmc.set_boot_device(node, BootDevice.PXE, persistent=False),
    "virtual media": lambda bmc, node: bmc.insert_ramdisk(node, Image("http://192.0.2.1/ramdisk.iso")),
}


def test_a_wrong_password_is_permanent_and_tried_too_seldom_to_lock_the_account(
    service: Service, bmc: RedfishBmc
) -> None:
    with pytest.raises(BmcError) as caught:
        bmc.get_power(node_of(service, password="wrong-" + PASSWORD))
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_CREDENTIALS)
    assert service.logins.rejected <= 2


@pytest.mark.parametrize("change", CHANGES)
def test_an_account_that_may_only_read_reads_and_is_told_so_once(
    service: Service, bmc: RedfishBmc, change: str
) -> None:
    node = node_of(service, user=VIEWER)
    assert bmc.get_power(node) is Power.OFF
    assert bmc.inventory(node)
    with pytest.raises(BmcError) as caught:
        CHANGES[change](bmc, node)
    assert not caught.value.transient
    assert caught.value.reason is not Reason.BMC_CREDENTIALS
    assert "privilege" in str(caught.value)
    assert len([one for one in service.asked if one.method != "GET" and one.path.startswith(service.system)]) <= 1
    assert service.machine.resets == []


def test_a_session_is_used_for_all_calls_and_deleted_at_the_end(service: Service) -> None:
    options = DriverOptions(command_timeout=60.0, inventory_timeout=60.0, limits=LAX, stop=Unhurried())
    with closing(RedfishBmc(options)) as driver:
        for _ in range(3):
            driver.get_power(node_of(service))
        driver.inventory(node_of(service))
        assert len(service.logins.sessions) == 1
    assert until(lambda: not service.logins.sessions)


def test_without_a_free_session_the_driver_works_all_the_same(service: Service, bmc: RedfishBmc) -> None:
    service.logins.occupy()
    others = dict(service.logins.sessions)
    node = node_of(service)
    bmc.set_power(node, Power.ON)
    assert until(lambda: bmc.get_power(node) is Power.ON)
    assert bmc.inventory(node)
    assert service.logins.sessions == others


def test_a_session_that_ended_is_replaced(service: Service, bmc: RedfishBmc) -> None:
    node = node_of(service)
    bmc.get_power(node)
    service.logins.sessions.clear()
    assert bmc.get_power(node) is Power.OFF
    assert len(service.logins.sessions) == 1


@pytest.mark.parametrize("personality", ALL, ids=lambda one: one.name)
def test_the_certificate_is_verified(personality: Personality, bmc: RedfishBmc, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with serving(personality, certificate) as service:
        assert bmc.get_power(node_of(service, redfish_verify_ca=str(certificate[0]))) is Power.OFF
        with pytest.raises(BmcError) as caught:
            bmc.get_power(node_of(service))
        assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_CERTIFICATE)


def test_a_ca_file_that_has_changed_counts_for_the_next_connection(tmp_path: Path) -> None:
    trusted, other = tmp_path / "ca.pem", tmp_path / "other"
    other.mkdir()
    with serving(ALL[0], self_signed(tmp_path)) as service:
        base = node_of(service).driver_info["redfish_address"]
        session = BoundedSession(base)
        for certificate, is_trusted in ((tmp_path / "bmc.pem", True), (self_signed(other)[0], False)):
            shutil.copy(certificate, trusted)
            session.disconnect()
            expected = nullcontext() if is_trusted else pytest.raises(requests.exceptions.SSLError)
            with Deadline(30), expected:
                assert session.get(f"{base}/redfish/v1/", verify=str(trusted), timeout=10).status_code == 200


def test_the_cas_of_the_host_are_not_read_for_a_bmc_that_is_not_verified(
    bmc: RedfishBmc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes ten times as long as a TLS handshake."""
    read: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append("default"))
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_: read.append("file"))
    with serving(ALL[0], self_signed(tmp_path)) as service:
        assert bmc.get_power(node_of(service, redfish_verify_ca=False)) is Power.OFF
    assert read == []
