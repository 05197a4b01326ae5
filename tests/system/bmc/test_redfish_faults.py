"""The Redfish driver when BMC and network misbehave: it ends in time, with the right word, without a secret."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ferroscope.bmc import BmcLimits
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.virtual_media import Image
from ferroscope.remote.addresses import Networks
from ferroscope_client.core.reasons import Reason
from tests.support import faulty_proxy as fault
from tests.support.faulty_proxy import FaultyProxy
from tests.support.processes import finished
from tests.support.redfish import PASSWORD, USER, Emulator, emulator, node_at, self_signed
from tests.system.bmc.conftest import LAX, MakeBmc

# Of a call to a BMC that does not answer; one that does has the time of a busy machine.
TIMEOUT = 2.0


def fails(call: Callable[[], object]) -> BmcError:
    """Return the error of ``call``, while the BMC goes on as it is."""
    with pytest.raises(BmcError) as caught:
        finished(call)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    return caught.value


@pytest.mark.parametrize("one_fault", [fault.status(503), fault.reset, fault.cut], ids=["503", "reset", "cut"])
def test_a_fault_that_passes_is_not_even_noticed(proxy: FaultyProxy, make_bmc: MakeBmc, one_fault: fault.Fault) -> None:
    bmc, node = make_bmc(), node_at(proxy.url)
    bmc.get_power(node)
    proxy.will(one_fault, times=2)
    assert bmc.get_power(node) in (Power.ON, Power.OFF)


@pytest.mark.parametrize(
    ("lasting", "reason", "limit"),
    [
        (fault.status(503), Reason.BMC_NOT_READY, {}),
        (fault.reset, Reason.BMC_UNREACHABLE, {}),
        (fault.silence, Reason.BMC_UNREACHABLE, {"timeout": TIMEOUT}),
        (fault.trickle, Reason.BMC_UNREACHABLE, {"timeout": TIMEOUT}),
    ],
    ids=["503", "reset", "silence", "trickle"],
)
def test_a_fault_that_lasts_is_transient_and_ends_in_time(
    proxy: FaultyProxy, make_bmc: MakeBmc, lasting: fault.Fault, reason: Reason, limit: dict[str, float]
) -> None:
    bmc, node = make_bmc(**limit), node_at(proxy.url)
    bmc.get_power(node)
    proxy.will(lasting, times=1000)
    error = fails(lambda: bmc.get_power(node))
    assert error.transient
    assert error.reason is reason
    assert proxy.url in str(error)


def test_a_command_is_not_lost_with_a_connection_that_the_bmc_closes_without_a_word(
    proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    """The proxy closes each connection after the answer; what is sent into it by then has not been seen by it."""
    bmc, node = make_bmc(), node_at(proxy.url)
    bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
    asked = []
    for _ in range(10):
        proxy.seen.clear()
        bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
        asked.append(proxy.requests("GET"))
    assert len(set(asked)) == 1, "some calls were tried again as a whole"


def test_the_number_of_tries_is_bounded(proxy: FaultyProxy, make_bmc: MakeBmc) -> None:
    bmc, node = make_bmc(timeout=20.0), node_at(proxy.url)
    proxy.will(fault.reset, times=1000)
    fails(lambda: bmc.get_power(node))
    assert len(proxy.seen) == 8  # four tries of the call, in each of which the GET is repeated once


@pytest.mark.parametrize(
    ("lasting", "reason"),
    [
        (fault.status(400, "no such thing"), Reason.BMC_REFUSED),
        (fault.status(403), Reason.BMC_PRIVILEGES),
        (fault.status(501), Reason.BMC_REFUSED),
        (fault.flood, Reason.BMC_REFUSED),
    ],
    ids=["400", "403", "501", "flood"],
)
def test_what_will_not_get_better_is_not_tried_again(
    proxy: FaultyProxy, make_bmc: MakeBmc, lasting: fault.Fault, reason: Reason
) -> None:
    bmc, node = make_bmc(timeout=10.0), node_at(proxy.url)
    bmc.get_power(node)
    before = len(proxy.seen)
    proxy.will(lasting, times=1000)
    error = fails(lambda: bmc.get_power(node))
    assert (error.transient, error.reason) == (False, reason)
    assert len(proxy.seen) - before <= 2


def test_a_busy_session_service_is_asked_again_not_circumvented(session_proxy: FaultyProxy, make_bmc: MakeBmc) -> None:
    session_proxy.will(fault.status(503), path="/Sessions", method="POST")
    assert make_bmc().get_power(node_at(session_proxy.url)) in (Power.ON, Power.OFF)
    assert session_proxy.requests("POST", "/Sessions") == 2


def test_a_command_whose_answer_got_lost_is_not_given_twice(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    bmc, node = make_bmc(), node_at(proxy.url, 7)
    bmc.set_power(node, Power.OFF)
    before = proxy.requests("POST", "ComputerSystem.Reset")
    proxy.will(fault.after_its_effect(fault.reset), method="POST", path="ComputerSystem.Reset")
    bmc.set_power(node, Power.ON)
    assert rack.system(7)["PowerState"] == "On"
    assert proxy.requests("POST", "ComputerSystem.Reset") - before == 1


@pytest.mark.parametrize("lost", [fault.reset, fault.cut, fault.silence], ids=["reset", "cut", "silence"])
def test_a_reset_whose_answer_got_lost_is_not_sent_again(
    proxy: FaultyProxy, make_bmc: MakeBmc, lost: fault.Fault
) -> None:
    """The caller looks first whether the machine has booted: a second reset would boot it from its disk."""
    bmc, node = make_bmc(**({"timeout": TIMEOUT} if lost is fault.silence else {})), node_at(proxy.url, 7)
    bmc.set_power(node, Power.ON)
    before = proxy.requests("POST", "ComputerSystem.Reset")
    proxy.will(fault.after_its_effect(lost), method="POST", path="ComputerSystem.Reset")
    error = fails(lambda: bmc.reboot(node))
    assert (error.transient, error.not_done) == (True, False)
    assert proxy.requests("POST", "ComputerSystem.Reset") - before == 1
    bmc.reboot(node)


def test_a_handshake_that_never_ends(make_bmc: MakeBmc) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        node = node_at(f"https://127.0.0.1:{server.getsockname()[1]}")
        error = fails(lambda: make_bmc(timeout=TIMEOUT).get_power(node))
    assert error.transient


def test_certificates_are_verified_unless_that_is_switched_off(tmp_path: Path, make_bmc: MakeBmc) -> None:
    certificate = self_signed(tmp_path)
    with emulator(tmp_path / "tls", machines=1, certificate=certificate) as running:
        bmc = make_bmc()
        error = fails(lambda: bmc.get_power(node_at(running.url)))
        assert (error.transient, error.reason) == (False, Reason.BMC_CERTIFICATE)
        assert bmc.get_power(node_at(running.url, redfish_verify_ca=str(certificate[0]))) is Power.OFF
        assert bmc.get_power(node_at(running.url, redfish_verify_ca=False)) is Power.OFF
        missing = fails(lambda: bmc.get_power(node_at(running.url, redfish_verify_ca="/none/such.pem")))
        assert (missing.transient, missing.reason) == (False, Reason.BMC_CA_UNUSABLE)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_bmc_outside_of_its_networks_is_not_connected_to_by_whatever_name(make_bmc: MakeBmc, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        node = node_at(f"https://{host}:{listening.getsockname()[1]}")
        bmc = make_bmc(limits=BmcLimits(networks=Networks(["192.0.2.0/24", "2001:db8::/32"])))
        error = fails(lambda: bmc.get_power(node))
        assert (error.transient, error.reason) == (False, Reason.BMC_NOT_ALLOWED)
        with pytest.raises(TimeoutError):
            listening.accept()


def test_a_bmc_in_its_networks_is_spoken_to(rack: Emulator, make_bmc: MakeBmc) -> None:
    limits = msgspec.structs.replace(LAX, networks=Networks(["127.0.0.0/8", "::1/128"]))
    url = rack.url.replace("127.0.0.1", "localhost")
    assert make_bmc(limits=limits).get_power(node_at(url)) in (Power.ON, Power.OFF)


def test_a_bmc_that_points_elsewhere_gets_no_token_there(
    session_proxy: FaultyProxy, proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    def elsewhere(handler) -> None:  # type: ignore[no-untyped-def]
        handler.answer(307, b"", headers={"Location": proxy.url + "/redfish/v1/"})

    bmc, node = make_bmc(), node_at(session_proxy.url)
    bmc.get_power(node)
    session_proxy.will(elsewhere, times=100)
    error = fails(lambda: bmc.get_power(node))
    assert not error.transient
    assert proxy.seen == []


def test_no_log_line_and_no_error_has_the_password(
    proxy: FaultyProxy, make_bmc: MakeBmc, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for trouble in (fault.status(503), fault.status(400, f"bad password {PASSWORD} of {USER}"), fault.status(401)):
        proxy.will(trouble, times=100)
        fails(lambda: make_bmc().set_boot_device(node_at(proxy.url), BootDevice.PXE, persistent=False))
        proxy.heal()
    make_bmc().get_power(node_at(proxy.url))
    assert PASSWORD not in caplog.text
    assert fault._basic({"UserName": USER, "Password": PASSWORD}) not in caplog.text


def test_a_refused_ejection_is_noticed_and_tried_again(rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc) -> None:
    bmc, node = make_bmc(), node_at(proxy.url, 42)
    image = Image(iso=f"{proxy.url}/redfish/v1/")
    bmc.insert_ramdisk(node, image)
    assert rack.media(42, "Cd")["Inserted"]
    proxy.will(fault.status(503), method="POST", path="EjectMedia")
    assert bmc.eject_ramdisk(node, image)
    assert not rack.media(42, "Cd")["Inserted"]
