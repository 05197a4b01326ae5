"""The simulated BMCs answer each line as their outcomes have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferroscope.contracts.bmc import Power
from ferroscope_sim.machine import SimMachine
from ferroscope_sim.model import FleetSettings, SimMember
from ferroscope_sim.outcomes import Counters, OutcomeTally
from ferroscope_sim.protocol import SimReply, read
from ferroscope_sim.server import Bmcs
from tests.support.rows import each


class Silent:
    """A ramdisk that does nothing."""

    def stop(self) -> bool:
        return True


class Desk:
    """BMCs of the machines named, and their answers as documents."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.totals = Counters()
        self.machines = {name: self.machine(SimMember(name, number)) for number, name in enumerate(names, 1)}
        self.now = 0.0
        self.bmcs = Bmcs(self.machines, FleetSettings(**settings), clock=lambda: self.now)

    def machine(self, member: SimMember) -> SimMachine:
        tally = OutcomeTally(self.totals, clock=lambda: 0.0)
        return SimMachine(member, tally, later=lambda *_: pytest.fail("nothing lags here"), start=lambda _: Silent())

    def reply(self, op: str, node: str = "sim-0001", **fields: object) -> SimReply:
        return self.bmcs.answer(read(msgspec.json.encode({"op": op, "node": node, **fields})))

    def ask(self, op: str, node: str = "sim-0001", **fields: object) -> dict[str, Any]:
        reply = self.reply(op, node, **fields)
        assert reply.line is not None
        assert reply.line.endswith(b"\n")
        assert not reply.hang_up
        return msgspec.json.decode(reply.line, type=dict[str, Any])


def test_power_is_commanded_and_read() -> None:
    desk = Desk("sim-0001")
    assert desk.ask("get_power") == {"ok": True, "power": "power off"}
    assert desk.ask("set_power", power="power on") == {"ok": True}
    assert desk.ask("get_power") == {"ok": True, "power": "power on"}
    assert desk.ask("set_power", power="rebooting") == {"ok": True}
    assert (desk.totals.reboots, desk.totals.bmc_calls) == (1, 4)


def test_a_bmc_that_does_not_know_the_power_carries_out_commands_all_the_same() -> None:
    desk = Desk("sim-power-unknown-1")
    assert desk.ask("set_power", "sim-power-unknown-1", power="power on") == {"ok": True}
    assert desk.ask("get_power", "sim-power-unknown-1") == {"ok": True, "power": "unknown"}
    assert desk.machines["sim-power-unknown-1"].power is Power.ON


def test_a_bmc_may_say_that_the_power_is_changing_until_it_has_changed() -> None:
    waiting: list[Callable[[], None]] = []

    class Later:
        def cancel(self) -> None: ...

    def later(_seconds: float, call: Callable[[], None]) -> Later:
        waiting.append(call)
        return Later()

    tally = OutcomeTally(Counters(), clock=lambda: 0.0)
    machine = SimMachine(SimMember("sim-power-changing-1", 1), tally, later=later, start=lambda _: Silent(), lag=2.0)
    machine.command("power on")
    assert machine.reported_power is Power.CHANGING
    waiting.pop()()
    assert machine.reported_power is Power.ON


def test_the_boot_device_is_set_and_read() -> None:
    desk = Desk("sim-0001")
    assert desk.ask("set_boot_device", device="pxe", persistent=True) == {"ok": True}
    assert desk.ask("get_boot_device") == {"ok": True, "device": "pxe", "persistent": True}


@each(
    ("op", "fields", "reason"),
    [
        ("set_power", {}, "power"),
        ("set_power", {"power": "soft"}, "power"),
        ("set_boot_device", {}, "device"),
        ("set_boot_device", {"device": "floppy"}, "device"),
        ("get_power", {"node": "sim-9999"}, "no machine named 'sim-9999'"),
        ("get_power", {"node": None}, "no machine named None"),
    ],
)
def test_what_makes_no_sense_is_refused_for_good(op: str, fields: dict[str, str], reason: str) -> None:
    answer = Desk("sim-0001").ask(op, **fields)
    assert (answer["ok"], answer["transient"]) == (False, False)
    assert reason in answer["error"]


def test_a_flaky_bmc_spoils_every_eighth_call_the_same_in_every_run() -> None:
    def run(seed: int) -> list[bool]:
        desk = Desk("sim-bmc-flaky-1", seed=seed)
        answers = [desk.ask("get_power", "sim-bmc-flaky-1") for _ in range(80)]
        assert all(answer["transient"] for answer in answers if not answer["ok"])
        assert desk.totals.bmc_faults == sum(not answer["ok"] for answer in answers)
        return [answer["ok"] for answer in answers]

    first = run(1)
    spoiled = [number for number, fine in enumerate(first) if not fine]
    assert [number - spoiled[0] for number in spoiled] == list(range(0, 80, 8))
    assert run(1) == first
    assert len({tuple(run(seed)) for seed in range(200)}) == 8


def test_a_spoiled_command_has_no_effect() -> None:
    desk = Desk("sim-bmc-dead-1", "sim-bmc-garbage-1", "sim-bmc-hang-up-1")
    for name, machine in desk.machines.items():
        desk.reply("set_power", name, power="power on")
        assert machine.power is Power.OFF
    assert (desk.totals.power_ons, desk.totals.bmc_faults) == (0, 3)


def test_dead_garbled_and_closing_bmcs_differ_on_the_wire() -> None:
    desk = Desk("sim-bmc-dead-1", "sim-bmc-garbage-1", "sim-bmc-hang-up-1")
    assert desk.reply("get_power", "sim-bmc-dead-1") == SimReply(None)
    assert desk.reply("get_power", "sim-bmc-hang-up-1") == SimReply(None, hang_up=True)
    line = desk.reply("get_power", "sim-bmc-garbage-1").line
    assert line is not None
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(line)


def test_a_slow_bmc_takes_its_time_by_scale_and_others_take_none() -> None:
    desk = Desk("sim-0001", "sim-bmc-slow-1", time_scale=0.25)
    assert desk.reply("get_power", "sim-bmc-slow-1").delay == 0.25
    assert desk.reply("get_power").delay == 0


def test_configured_delays_are_spread_and_not_scaled() -> None:
    desk = Desk("sim-0001", bmc_delay=1.0, bmc_jitter=0.5, time_scale=0.001)
    delays = {desk.reply("get_power").delay for _ in range(100)}
    assert len(delays) == 100
    assert 0.5 <= min(delays) < 0.6
    assert 1.4 < max(delays) <= 1.5


def test_log_normal_delays_differ_from_call_to_call_and_repeat_themselves() -> None:
    def delays() -> list[float]:
        desk = Desk("sim-0001", bmc_delay=1.0, bmc_sigma=0.5)
        return [desk.reply("get_power").delay for _ in range(200)]

    assert delays() == delays()
    assert len(set(delays())) == 200
    assert 0.85 < sorted(delays())[100] < 1.15


def test_a_flapping_bmc_is_silent_for_a_third_of_each_period() -> None:
    desk = Desk("sim-bmc-flapping-1", "sim-bmc-flapping-2", time_scale=0.5)

    def silences(name: str) -> list[bool]:
        found = []
        for second in range(60):
            desk.now = float(second)
            found.append(desk.reply("get_power", name) == SimReply(None))
        return found

    first, second = silences("sim-bmc-flapping-1"), silences("sim-bmc-flapping-2")
    assert (sum(first), sum(second)) == (20, 20)
    assert first[:30] == first[30:]
    assert sum(one != before for one, before in zip(first[1:30], first[:29], strict=True)) <= 2
    assert first != second


def test_until_faults_are_on_every_bmc_works_well_and_at_once() -> None:
    names = ("sim-bmc-dead-1", "sim-bmc-flaky-1", "sim-bmc-flapping-1", "sim-bmc-slow-1", "sim-0001")
    desk = Desk(*names, bmc_delay=1.0, bmc_sigma=0.5, bmc_faults=False)
    for name in names * 10:
        assert desk.ask("get_power", name)["ok"]
        assert desk.reply("get_power", name).delay == 0
    desk.bmcs.faulty = True
    assert desk.reply("get_power", "sim-bmc-dead-1") == SimReply(None)


@each("line", [b"", b"{", b"[]", b'{"node": "x"}', b'{"op": 1}', b'{"op": "x", "node": 5}', b"\xff"])
def test_a_line_that_is_no_call_is_refused_with_a_sentence(line: bytes) -> None:
    with pytest.raises(ValueError, match="op"):
        read(line)
