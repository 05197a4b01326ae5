"""The control calls and the port itself, over real TCP."""

from __future__ import annotations

import socket
import time

import msgspec
import pytest

from ferroscope_sim.client import ControlError, FleetClient
from ferroscope_sim.outcomes import Counters, Effect
from ferroscope_sim.protocol import MAX_LINE_BYTES
from tests.support.processes import PATIENCE
from tests.system.sim.driving import Drive, driving
from tests.system.sim.receiver import Receiver


def connect(drive: Drive) -> socket.socket:
    host, port = drive.fleet.address.split(":")
    return socket.create_connection((host, int(port)), 5)


def lines(peer: socket.socket, count: int) -> list[dict[str, object]]:
    with peer.makefile("rb") as file:
        return [msgspec.json.decode(file.readline()) for _ in range(count)]


def test_status_tells_everything_or_what_was_asked_for() -> None:
    with driving("sim-timeout-1", nodes=2) as drive:
        drive.power("sim-0002", "power on")
        before = time.time()
        whole = drive.client.status()
        assert list(whole.nodes) == ["sim-0001", "sim-0002", "sim-timeout-1"]
        assert (whole.machines, whole.on, whole.totals.power_ons) == (3, 1, 1)
        assert before <= whole.time <= time.time()
        assert whole.nodes["sim-timeout-1"].outcome == "timeout"
        assert whole.nodes["sim-0002"].counters.power_ons == 1
        assert whole.nodes["sim-0002"].log == ()
        some = drive.client.status(["sim-0002", "unknown"], log=True)
        assert list(some.nodes) == ["sim-0002"]
        assert [trace.effect for trace in some.nodes["sim-0002"].log] == [Effect.POWER_ONS, Effect.BOOTS]
        assert drive.client.status(nodes=False).nodes == {}


def test_a_reset_makes_every_machine_as_new_even_with_callbacks_on_the_wire() -> None:
    with Receiver("hang") as receiver, driving(nodes=3, callback_url=receiver.url) as drive:
        for number in (1, 2, 3):
            drive.boot(f"sim-000{number}")
        drive.until(Effect.CALLBACKS_SENT, 3)
        drive.client.reset()
        receiver.ended.set()
        status = drive.client.status()
        assert (status.on, status.totals, status.latency.count) == (0, Counters(), 0)
        assert all(machine.counters == Counters() for machine in status.nodes.values())
        assert drive.client.wait_off(timeout=PATIENCE)
        assert drive.client.status(nodes=False).totals == Counters()


def test_waiting_for_off_knows_who_is_meant() -> None:
    with driving(nodes=2, boot_delay=30) as drive:
        drive.boot("sim-0002")
        assert drive.client.wait_off(["sim-0001"], timeout=1)
        assert not drive.client.wait_off(["sim-0001", "sim-0002"], timeout=0.05)
        assert not drive.client.wait_off(timeout=0.05)
        with FleetClient(drive.fleet.address) as other:
            other.call("set_power", node="sim-0002", power="power off")
        assert drive.client.wait_off(timeout=PATIENCE)


def test_a_machine_that_is_off_with_a_callback_on_the_wire_is_waited_for() -> None:
    with Receiver("hang") as receiver, driving(nodes=1, callback_url=receiver.url) as drive:
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_SENT)
        drive.power("sim-0001", "power off")
        assert not drive.client.wait_off(timeout=0.05)
        assert not drive.client.wait_off(["sim-0001"], timeout=0.05)
        receiver.ended.set()
        assert drive.client.wait_off(timeout=PATIENCE)
        assert drive.machine("sim-0001").counters.callbacks_failed == 1


def test_waiting_for_a_counter_ends_when_it_is_reached_or_in_time() -> None:
    with driving(nodes=1) as drive:
        assert not drive.client.wait_for(Effect.POWER_ONS, 1, timeout=0.05)
        drive.power("sim-0001", "power on")
        assert drive.client.wait_for(Effect.POWER_ONS, 1, timeout=0)
        with pytest.raises(ControlError, match="effect must be one of: bmc_calls"):
            drive.client.call("wait", effect="nothing")


def test_later_boots_call_back_to_another_url() -> None:
    with Receiver() as old, Receiver() as new, driving(nodes=1, callback_url=old.url) as drive:
        drive.client.call_back_to(new.url)
        drive.boot("sim-0001")
        drive.until(Effect.CALLBACKS_ACCEPTED)
        assert (len(old.callbacks), len(new.callbacks)) == (0, 1)
        assert drive.client.status(nodes=False).callback_url == new.url


@pytest.mark.parametrize("url", ["", "ftp://x/"])
def test_a_callback_url_that_is_none_is_refused(url: str) -> None:
    with driving(nodes=1) as drive:
        before = drive.client.status(nodes=False).callback_url
        with pytest.raises(ControlError, match="callback"):
            drive.client.call_back_to(url)
        assert drive.client.status(nodes=False).callback_url == before


@pytest.mark.parametrize("line", [b"{", b'{"op": "fly"}', b'{"op": "status", "names": 5}'])
def test_a_line_that_makes_no_sense_is_answered_and_the_next_one_works(line: bytes) -> None:
    with driving(nodes=1) as drive, connect(drive) as peer:
        peer.sendall(line + b'\n{"op": "get_power", "node": "sim-0001"}\n')
        refusal, answer = lines(peer, 2)
        assert refusal["ok"] is False
        assert refusal["error"]
        assert answer == {"ok": True, "power": "power off"}


def test_lines_in_one_piece_and_in_many_are_answered_in_order() -> None:
    calls = [
        {"op": "set_power", "node": "sim-bmc-slow-1", "power": "power on"},
        {"op": "get_power", "node": "sim-0001"},
        {"op": "wait", "effect": "power_ons", "at_least": 1, "timeout": 5},
        {"op": "get_power", "node": "sim-bmc-slow-1"},
    ]
    text = b"".join(msgspec.json.encode(call) + b"\n" for call in calls)
    with driving("sim-bmc-slow-1", nodes=1) as drive:
        for size in (len(text), 7):
            drive.client.reset()
            with connect(drive) as peer:
                for at in range(0, len(text), size):
                    peer.sendall(text[at : at + size])
                done, other, waited, slow = lines(peer, 4)
            assert done == {"ok": True}
            assert other["power"] == "power off"
            assert (waited["reached"], waited["total"]) == (True, 1)
            assert slow["power"] == "power on"


def test_a_client_that_sends_no_end_of_line_is_cut_off() -> None:
    with driving(nodes=1) as drive, connect(drive) as peer:
        peer.sendall(b"x" * (MAX_LINE_BYTES + 2))
        (refusal,) = lines(peer, 1)
        assert refusal["ok"] is False
        assert peer.recv(1) == b""
        assert drive.client.status().machines == 1


def test_a_client_that_leaves_during_a_wait_harms_nobody() -> None:
    with driving("sim-bmc-slow-1", nodes=1) as drive:
        for line in (b'{"op": "wait_off", "timeout": 60}', b'{"op": "get_power", "node": "sim-bmc-slow-1"}'):
            drive.power("sim-0001", "power on")
            with connect(drive) as peer:
                peer.sendall(line + b"\n")
            assert drive.client.status().machines == 2


def test_a_fleet_of_ten_thousand_answers_with_all_of_them() -> None:
    with driving(nodes=10_000) as drive:
        assert len(drive.client.status().nodes) == 10_000


def test_a_client_says_that_there_is_no_fleet() -> None:
    with pytest.raises(ControlError, match=r"127\.0\.0\.1:1"):
        FleetClient("127.0.0.1:1")
    with pytest.raises(ControlError, match="nonsense"):
        FleetClient("nonsense")


def test_a_client_says_that_the_fleet_is_gone() -> None:
    with driving(nodes=1) as drive:
        client = FleetClient(drive.fleet.address)
    with client, pytest.raises(ControlError, match="status"):
        client.status()
