"""Ramdisks of a real fleet call back a real HTTP server, in every outcome and through its failures."""

from __future__ import annotations

import pytest

from ferroscope_sim.inventory import generate
from ferroscope_sim.outcomes import Effect
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


def test_repeated_callbacks_are_on_the_wire_at_once_and_the_same() -> None:
    with Receiver() as receiver, driving("sim-repeat-1", callback_url=receiver.url) as drive:
        drive.boot("sim-repeat-1")
        drive.until(Effect.CALLBACKS_ACCEPTED, 3)
        assert len({callback.body for callback in receiver.callbacks}) == 1
        assert len({callback.client for callback in receiver.callbacks}) == 3


@pytest.mark.parametrize("trouble", [503, "close", b"nonsense\r\n\r\n"])
def test_a_callback_is_tried_again_until_it_is_answered(trouble: int | str | bytes) -> None:
    with Receiver(trouble, trouble, 202) as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        counters = drive.machine("sim-0001").counters
        assert (counters.callbacks_sent, counters.callbacks_failed) == (3, 2)
        assert len({callback.body for callback in receiver.callbacks}) == 1


def test_a_service_that_never_answers_kills_the_agent_after_the_time_out() -> None:
    script = ("hang", 202)
    with Receiver(*script) as receiver, driving(nodes=1, callback_url=receiver.url, request_timeout=0.2) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        counters = drive.machine("sim-0001").counters
        assert (counters.callbacks_failed, counters.agent_restarts) == (1, 1)


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
