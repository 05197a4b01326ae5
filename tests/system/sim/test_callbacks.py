"""Ramdisks of a real fleet call back a real HTTP server, in every outcome and through its failures."""

from __future__ import annotations

import socket

import msgspec
import pytest

from ferroscope_sim.bodies import RAMDISK_ERROR
from ferroscope_sim.inventory import generate, pxe_mac
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.outcomes import Effect
from tests.support.processes import PATIENCE
from tests.system.sim.driving import driving
from tests.system.sim.receiver import Receiver


def test_a_machine_that_boots_its_ramdisk_calls_back_with_its_inventory() -> None:
    with Receiver() as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        (callback,) = receiver.callbacks
        assert callback.path == "/v1/continue_inspection"
        assert callback.body == generate(1)
        machine = drive.machine("sim-0001")
        assert [trace.effect for trace in machine.log] == [
            Effect.BOOT_DEVICE_SETS,
            Effect.POWER_ONS,
            Effect.BOOTS,
            Effect.CALLBACKS_ACCEPTED,
        ]
        boot, answered = machine.log[2].at, machine.log[3].at
        assert boot < answered
        latency = drive.client.status(nodes=False).latency
        assert latency.count == 1
        assert 0 < latency.p50 == latency.max


def test_a_callback_has_the_agents_headers() -> None:
    with Receiver() as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        headers = receiver.callbacks[0].headers
        assert headers["content-type"] == headers["accept"] == "application/json"
        assert headers["host"] in receiver.url
        assert "x-openstack-ironic-api-version" not in headers


def test_a_machine_that_boots_from_disk_calls_nobody() -> None:
    with Receiver() as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.power("sim-0001", "power on")
        drive.power("sim-0001", "power off")
        assert drive.client.wait_off(timeout=PATIENCE)
        assert receiver.callbacks == []


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        *((f"sim-{name}-1", 1) for name in ("ok", "ramdisk-error", "no-nics", "no-memory", "no-arch", "bad-mac")),
        *((f"sim-{name}-1", 1) for name in ("unknown-macs", "bad-json", "deep-json", "late", "power-lag")),
        *((f"sim-{name}-1", 1) for name in ("bmc-slow", "power-off-fail", "huge-body", "slow-post")),
        ("sim-broken-post-1", 2),
        ("sim-repeat-10", 3),
        ("sim-conflict-11", 2),
    ],
)
def test_every_outcome_that_calls_back_does_so(name: str, sent: int) -> None:
    accepted = 1 if "broken" in name else sent
    with Receiver() as receiver, driving(name, callback_url=receiver.url) as drive:
        drive.boot(name)
        drive.until(Effect.CALLBACKS_ACCEPTED, accepted)
        counters = drive.machine(name).counters
        assert (counters.callbacks_sent, counters.callbacks_accepted) == (sent, accepted)
        assert counters.callbacks_failed == sent - accepted
        assert len(receiver.callbacks) == accepted


@pytest.mark.parametrize("name", ["sim-timeout-3", "sim-power-stuck-1"])
def test_the_other_outcomes_never_call_back(name: str) -> None:
    with Receiver() as receiver, driving(name, "sim-late-1", callback_url=receiver.url) as drive:
        drive.boot(name)
        drive.boot("sim-late-1")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        assert len(receiver.callbacks) == 1
        assert drive.machine(name).counters.callbacks_sent == 0


def test_an_error_of_the_ramdisk_comes_with_its_inventory() -> None:
    with Receiver() as receiver, driving("sim-ramdisk-error-1", callback_url=receiver.url) as drive:
        drive.boot("sim-ramdisk-error-1")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        (document,) = receiver.documents()
        assert document["error"] == RAMDISK_ERROR
        booted = pxe_mac(roster(FleetSettings(nodes=0, special=("sim-ramdisk-error-1",)))[0].number)
        assert booted in {interface["mac_address"] for interface in document["inventory"]["interfaces"]}


def test_repeated_callbacks_are_on_the_wire_at_once_and_the_same() -> None:
    with Receiver() as receiver, driving("sim-repeat-1", callback_url=receiver.url) as drive:
        drive.boot("sim-repeat-1")
        drive.until(Effect.CALLBACKS_ACCEPTED, 3)
        assert len({callback.body for callback in receiver.callbacks}) == 1
        assert len({callback.client for callback in receiver.callbacks}) == 3


def test_conflicting_callbacks_differ_and_are_of_one_machine() -> None:
    with Receiver() as receiver, driving("sim-conflict-1", callback_url=receiver.url) as drive:
        drive.boot("sim-conflict-1")
        drive.until(Effect.CALLBACKS_ACCEPTED, 2)
        one, two = receiver.documents()
        assert one != two
        assert one["inventory"]["interfaces"] == two["inventory"]["interfaces"]


@pytest.mark.parametrize("trouble", [500, 503, 409, "close", b"nonsense\r\n\r\n", b"HTTP/1.1 202 OK\r\nContent-Le"])
def test_a_callback_is_tried_again_until_it_is_answered(trouble: int | str | bytes) -> None:
    with Receiver(trouble, trouble, 202) as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        counters = drive.machine("sim-0001").counters
        assert (counters.callbacks_sent, counters.callbacks_failed) == (3, 2)
        assert len({callback.body for callback in receiver.callbacks}) == 1


@pytest.mark.parametrize("status", [400, 404, 413])
def test_a_refused_callback_is_not_tried_again(status: int) -> None:
    with Receiver(status) as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_REFUSED)
        drive.power("sim-0001", "power off")
        assert drive.client.wait_off(timeout=PATIENCE)
        counters = drive.machine("sim-0001").counters
        assert (counters.callbacks_sent, counters.ramdisks_interrupted) == (1, 0)
        assert len(receiver.callbacks) == 1


def test_an_agent_that_used_up_its_tries_is_started_again_until_the_service_is_back() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        with driving(nodes=1, callback_url=url) as drive:
            drive.boot("sim-0001")
            drive.until(Effect.AGENT_RESTARTS)
            counters = drive.machine("sim-0001").counters
            assert counters.callbacks_failed >= 5


def test_a_service_that_never_answers_kills_the_agent_after_the_time_out() -> None:
    script = ("hang", 202)
    with Receiver(*script) as receiver, driving(nodes=1, callback_url=receiver.url, request_timeout=0.2) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        counters = drive.machine("sim-0001").counters
        assert (counters.callbacks_failed, counters.agent_restarts) == (1, 1)


def test_the_second_url_is_used_when_the_first_does_not_take_the_connection() -> None:
    with socket.socket() as nobody, Receiver() as receiver:
        nobody.bind(("127.0.0.1", 0))
        urls = f"http://127.0.0.1:{nobody.getsockname()[1]}/, {receiver.url}"
        with driving(nodes=1, callback_url=urls) as drive:
            drive.boot("sim-0001")
            drive.until(Effect.CALLBACKS_ACCEPTED)
            assert drive.machine("sim-0001").counters.callbacks_sent == 2


def test_power_off_during_the_boot_prevents_the_callback_and_is_counted() -> None:
    with Receiver() as receiver, driving(nodes=2, callback_url=receiver.url, boot_delay=0.2, boot_jitter=0) as drive:
        drive.boot("sim-0001")
        drive.power("sim-0001", "power off")
        drive.boot("sim-0002")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        assert len(receiver.callbacks) == 1
        assert drive.machine("sim-0001").counters.ramdisks_interrupted == 1


def test_power_off_ends_the_retries() -> None:
    with Receiver(503) as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_FAILED, 2)
        drive.power("sim-0001", "power off")
        assert drive.client.wait_off(timeout=PATIENCE)
        sent = drive.machine("sim-0001").counters.callbacks_sent
        assert len(receiver.callbacks) == sent
        assert drive.machine("sim-0001").counters.ramdisks_interrupted == 1


def test_a_reset_boots_once_more_and_calls_back_once_more() -> None:
    with Receiver() as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        drive.client.call("set_boot_device", node="sim-0001", device="pxe", persistent=False)
        drive.power("sim-0001", "rebooting")
        drive.until(Effect.CALLBACKS_ACCEPTED, 2)
        counters = drive.machine("sim-0001").counters
        assert (counters.reboots, counters.pxe_boots, counters.power_ons) == (1, 2, 1)
        assert len(receiver.callbacks) == 2


def test_callbacks_one_after_the_other_share_a_connection() -> None:
    with Receiver() as receiver, driving(nodes=10, callback_url=receiver.url, connections=1) as drive:
        for number in range(1, 11):
            drive.boot(f"sim-{number:04d}")
        drive.until(Effect.CALLBACKS_ACCEPTED, 10)
        assert len({callback.client for callback in receiver.callbacks}) == 1


def test_a_connection_that_the_server_will_close_is_not_used_again() -> None:
    last = b"HTTP/1.1 202 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    with Receiver(last, 202) as receiver, driving(nodes=2, callback_url=receiver.url) as drive:
        for number in (1, 2):
            drive.boot(f"sim-000{number}")
            drive.until(Effect.CALLBACKS_ACCEPTED, number)
        assert len({callback.client for callback in receiver.callbacks}) == 2


def test_a_kept_connection_that_the_server_closed_costs_no_try() -> None:
    with Receiver() as first, driving(nodes=2, callback_url=first.url) as drive:
        closing = b"HTTP/1.1 202 OK\r\nContent-Length: 2\r\n\r\n{}"
        first.script = [closing, "close", 202]
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        drive.boot("sim-0002")
        drive.until(Effect.CALLBACKS_ACCEPTED, 2)
        assert drive.machine("sim-0002").counters.callbacks_failed == 0
        assert len(first.callbacks) == 3


def test_no_more_callbacks_are_on_the_wire_than_connections() -> None:
    with Receiver("hang") as receiver, driving(nodes=20, callback_url=receiver.url, connections=4) as drive:
        for number in range(1, 21):
            drive.boot(f"sim-{number:04d}")
        drive.until(Effect.CALLBACKS_SENT, 4)
        # Any four of the twenty may have been first: one that is switched off now makes room for another one.
        assert drive.client.status(nodes=False).totals.callbacks_sent == 4
        for number in range(5, 21):
            drive.power(f"sim-{number:04d}", "power off")
        receiver.script = [202]
        receiver.ended.set()
        drive.until(Effect.CALLBACKS_ACCEPTED, 4)


def test_a_given_inventory_file_reaches_the_callback(tmp_path: object) -> None:
    path = f"{tmp_path}/given.json"
    given = {"interfaces": [{"name": "eth0", "mac_address": "aa:bb:cc:dd:ee:ff"}], "cpu": {"count": 3}}
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(msgspec.json.encode(given))
    with Receiver() as receiver, driving(nodes=2, callback_url=receiver.url, inventory_file=path) as drive:
        drive.boot("sim-0002")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        (document,) = receiver.documents()
        assert document["inventory"]["cpu"] == {"count": 3}
        assert document["inventory"]["interfaces"][0]["mac_address"] == pxe_mac(2)
