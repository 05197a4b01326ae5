"""The filter's role on a store in memory: elections, what is loaded, what is told, and that everything closes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ferroscope import transition
from ferroscope.bus.local import LocalBus
from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.store import Query, StopFlag
from ferroscope.contracts.telemetry import Silent
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.dhcp_leases import DhcpLeases
from ferroscope.contrib.boot.pxe_filter.leader import PxeFilter
from ferroscope.contrib.boot.pxe_filter.sync import MacSync
from ferroscope.core.boot_macs import DHCP_STEP, FilterRecord, SetChange, decode_record
from ferroscope.core.model import DEFAULT
from ferroscope.leadership import Election, Leadership
from ferroscope_client.core.states import Provision, State
from tests.support import examples
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.rows import each
from tests.support.stores import open_store


class Firewall:
    """A mechanism in memory; ``fail`` is asked before each call."""

    name = "memory"
    self_closing = True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.open_until = 0.0
        self.allow: set[int] = set()
        self.deny: set[int] = set()
        self.calls: list[str] = []
        self.fail: Callable[[str], bool] = lambda _call: False
        self.error: type[Exception] = PxeFilterError
        self.steps = 0  # of a change, which take longer together than a leader may be silent

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.fail(call):
            raise self.error(f"{call} failed")

    def install(self) -> None:
        self._called("install")

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        self._called("load" if fresh else "change")
        for _ in range(self.steps):
            self._clock.now += DEFAULT.ttl / 2
            progress()
        if fresh:
            self.allow, self.deny = set(), set()
        self.allow = self.allow - set(change.no_longer_allow) | set(change.allow)
        self.deny = self.deny - set(change.no_longer_deny) | set(change.deny)

    def hold(self, until: float) -> float:
        self._called("hold")
        self.open_until = min(until, self._clock.now + 2)
        return self.open_until

    def close(self) -> None:
        self._called("close")
        self.open_until = 0.0

    def remove(self) -> None:
        self._called("remove")

    @property
    def open(self) -> bool:
        return self.open_until > self._clock.now + 1e-6


class Unstarted(threading.Thread):
    """A thread that never runs: what is opened once stays so for its time."""

    def start(self) -> None:
        """Do not."""


class FilterMeter(Silent):
    """What was last said of the filter: whether it is open, how many MACs are allowed and denied."""

    reported: tuple[bool, int, int] | None = None

    def set_pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None:
        self.reported = (is_open, allowed, denied)


class Network:
    """One store, one clock, and filters with their firewalls; ``at`` says what happens at each look of a leader."""

    def __init__(self, lease_file: Path = Path("/nonexistent")) -> None:
        self.clock = ManualClock()
        self.lease_file = lease_file
        self.requests: dict[int, frozenset[int]] = {}
        self.stop = ManualStop(self.clock)
        self.bus = LocalBus()
        self.store = open_store(bus=self.bus, clock=self.clock)
        self.firewall = Firewall(self.clock)
        self.records: list[FilterRecord] = []
        self.at: dict[int, Callable[[], object]] = {}
        self.looks = 0
        self.meter = FilterMeter()
        self.pxe_filter = self._pxe_filter("a")

    def _pxe_filter(self, holder: str) -> PxeFilter:
        return PxeFilter(
            Election("pxe/net", holder, store=self.store, clock=self.clock, profile=DEFAULT),
            MacSync(self.store),
            self.firewall,
            DhcpLeases(
                self.store,
                [self.lease_file],
                host="boot1",
                process="pxe-filter",
                take_requesters=lambda: self.requests.pop(self.looks, frozenset()),
            ),
            settings=PxeFilterSettings(network="net"),
            guard_seconds=0.0,
            poll_interval=0.0,
            host="boot1",
            keep=self._keep,
            profile=msgspec.structs.replace(DEFAULT, poll=0.0),
            bus=self.bus,
            clock=self.clock,
            stop=self.stop,
            meter=self.meter,
            new_flag=lambda: ManualStop(self.clock),
            new_thread=Unstarted,
        )

    def _keep(self, leadership: Leadership, _reset: StopFlag) -> None:
        network = self
        wait = self.bus.wait_any

        def looked(channels: object, seen: int, timeout: float) -> int:
            network.clock.now += 0.1
            network.looks += 1
            lease = network.store.read(lambda tx: tx.leases.list("pxe/"))[0]
            network.records.append(decode_record(lease.data))
            network.at.pop(network.looks, lambda: None)()
            return wait(("allow", "deny"), seen, 0.0)

        self.bus.wait_any = looked  # type: ignore[method-assign]
        self.leadership = leadership

    def node(self, mac: str, state: State = State.NONE) -> str:
        node = examples.node(state=state, provision_state=Provision.MANAGEABLE)
        self.store.write(lambda tx: tx.nodes.add(node))
        self.store.write(lambda tx: tx.ports.add([examples.port(node, address=mac)]))
        return node.uuid

    def inspect(self, node: str) -> None:
        self.store.write(lambda tx: transition.start(tx, tx.nodes.get(node), inspection=examples.uuid(), process="t"))


IDLE, BUSY = "52:54:00:00:00:01", "52:54:00:00:00:02"


def test_a_leader_loads_opens_follows_tells_and_closes_at_its_end() -> None:
    network = Network()
    network.node(IDLE)
    busy = network.node(BUSY)
    network.at = {2: lambda: network.inspect(busy), 6: network.stop.set}
    network.pxe_filter.campaign()
    assert network.firewall.calls[:3] == ["close", "load", "hold"], "closed before the election"
    assert (network.firewall.allow, network.firewall.deny) == ({0x525400000002}, {0x525400000001})
    assert not network.firewall.open
    told = network.records[-1]
    assert (told.open, told.host, told.allowed, told.denied, told.missing) == (True, "boot1", 1, 1, ())
    assert told.has_applied(network.store.read(lambda tx: tx.macs.newest(node=busy)))
    assert network.leadership.has_resigned
    assert network.store.read(lambda tx: tx.leases.list("pxe/"))[0].holder is None


def test_the_timeline_of_a_machine_that_may_boot_says_whether_it_asked_and_which_address_it_got(tmp_path: Path) -> None:
    def assign(expires: int, *macs: str) -> None:
        leases = [f"{expires} {mac} 10.0.0.{number} * 01:{mac}" for number, mac in enumerate(macs, start=50)]
        network.lease_file.write_text("\n".join([*leases, "duid 00:01:00:01", f"{expires} 77 fd00::1 * 00:01", ""]))

    network = Network(tmp_path / "leases")
    network.node(IDLE)
    busy, silent, unanswered = network.node(BUSY), network.node("52:54:00:00:00:03"), network.node("52:54:00:00:00:05")
    for node in (busy, silent, unanswered):
        network.inspect(node)
    asked = frozenset([0x525400000001, 0x525400000002, 0x525400000005])
    network.requests = {0: frozenset([0x525400000003]), 2: asked, 3: asked}
    assign(100, IDLE, "52:54:00:00:00:04", "52:54:00:00:00:03")
    network.at = {
        2: lambda: assign(200, IDLE, BUSY), 4: lambda: assign(300, IDLE, BUSY), 6: network.stop.set,
    }  # fmt: skip
    network.pxe_filter.campaign()
    entries = network.store.read(lambda tx: tx.journal.list(Query()))
    steps = sorted((entry.message, entry.node) for entry in entries if entry.step == DHCP_STEP)
    assert steps == [
        (f"dnsmasq on boot1 assigned 10.0.0.51 to {BUSY}", busy),
        ("dnsmasq on boot1 assigned no address to the DHCP request of 52:54:00:00:00:05", unanswered),
    ]
    assert network.records[-1].requests


def test_the_gauge_says_closed_at_the_start_and_after_the_end() -> None:
    network = Network()
    network.node(IDLE)
    seen: list[tuple[bool, int, int] | None] = []
    network.at = {2: lambda: seen.append(network.meter.reported), 3: network.stop.set}
    network.pxe_filter.campaign()
    assert (seen, network.meter.reported) == ([(True, 0, 1)], (False, 0, 1))
    other = Network()
    other.stop.set()
    other.pxe_filter.run()
    assert other.meter.reported == (False, 0, 0)


def test_a_pxe_filter_whose_process_was_told_to_stop_while_the_guard_passed_does_not_open() -> None:
    network = Network()
    network.stop.set()
    network.pxe_filter.campaign()
    assert network.firewall.calls == ["close", "load", "close"]
    assert network.leadership.has_resigned


def test_after_the_databases_clock_was_set_ahead_a_pxe_filter_opens_only_when_the_earlier_one_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network()
    clock, step = network.clock, [0.0]
    clock.time = lambda: clock.now + step[0]  # type: ignore[method-assign]
    earlier = Election("pxe/net", "b", store=network.store, clock=clock, profile=DEFAULT).campaign()
    assert earlier is not None
    moved = network.bus.wait

    def waited(channel: str, seen: int, timeout: float) -> int:
        clock.now += timeout
        return moved(channel, seen, 0.0)

    network.bus.wait = waited  # type: ignore[method-assign]
    network.pxe_filter.campaign()  # sees that the lease is somebody else's
    assert network.looks == 0
    earlier.keep_alive()
    assert earlier.renew()
    step[0] = 1200.0
    opened: list[bool] = []
    hold = network.firewall.hold

    def held(until: float) -> float:
        opened.append(earlier.is_valid())
        return hold(until)

    keep_alive = Leadership.keep_alive

    def renewed(leadership: Leadership) -> None:
        keep_alive(leadership)
        leadership.renew()

    monkeypatch.setattr(Leadership, "keep_alive", renewed)
    network.firewall.hold = held  # type: ignore[method-assign]
    network.at = {3: network.stop.set}
    network.pxe_filter.campaign()
    assert opened
    assert not any(opened), "two filters were open"


def test_long_changes_give_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    network.firewall.steps = 5
    signs = [network.clock.now]
    keep_alive = Leadership.keep_alive

    def alive(leadership: Leadership) -> None:
        signs.append(network.clock.now)
        keep_alive(leadership)
        leadership.renew()

    monkeypatch.setattr(Leadership, "keep_alive", alive)
    network.at = {2: lambda: network.node(BUSY), 9: network.stop.set}
    network.pxe_filter.campaign()
    assert [call for call in network.firewall.calls if call in ("load", "change")] == ["load", "change"]
    assert max(later - sooner for sooner, later in itertools.pairwise([*signs, network.clock.now])) < DEFAULT.ttl


def test_a_pxe_filter_that_is_not_renewed_closes_when_its_trust_ends() -> None:
    network = Network()
    network.pxe_filter.campaign()
    assert not network.firewall.open
    assert network.clock.now < network.leadership.trusted_until + 0.2


def test_a_change_that_does_not_apply_is_loaded_whole_and_if_that_fails_too_the_lease_is_left() -> None:
    network = Network()
    network.node(IDLE)
    broken: set[str] = {"change"}
    network.firewall.fail = lambda call: call in broken
    network.at = {2: lambda: network.node(BUSY), 5: lambda: (broken.add("load"), network.node("52:54:00:00:00:03"))}
    with pytest.raises(PxeFilterError):
        network.pxe_filter.campaign()
    assert network.firewall.calls.count("load") == 3
    assert not network.firewall.open
    assert network.store.read(lambda tx: tx.leases.list("pxe/"))[0].holder is None, "whoever can, shall"


@each("error", [PxeFilterError, ValueError])
def test_a_pxe_filter_that_cannot_be_held_open_gives_its_lease_up(error: type[Exception]) -> None:
    network = Network()
    network.firewall.fail, network.firewall.error = lambda call: call == "hold", error
    with pytest.raises(PxeFilterError, match="hold failed"):
        network.pxe_filter.campaign()
    assert network.leadership.has_resigned


def test_a_filter_that_cannot_be_closed_does_not_campaign_and_keeps_its_lease_until_the_kernel_has_closed_it() -> None:
    network = Network()
    network.firewall.fail = lambda call: call == "close"
    with pytest.raises(PxeFilterError, match="close failed"):
        network.pxe_filter.campaign()
    assert network.firewall.calls == ["close"]
    network = Network()
    network.at = {3: lambda: (network.stop.set(), setattr(network.firewall, "fail", lambda call: call == "close"))}
    network.pxe_filter.campaign()
    assert network.leadership.has_resigned
    assert not network.firewall.open, "it waited for the time-out before it let go"


def test_what_cannot_be_closed_and_does_not_close_by_itself_keeps_its_lease_until_it_is_closed() -> None:
    network = Network()
    network.firewall.self_closing = False
    network.at = {3: lambda: (network.stop.set(), setattr(network.firewall, "fail", lambda call: call == "close"))}
    network.pxe_filter.campaign()
    assert not network.leadership.has_resigned
    network.pxe_filter.fail_closed()
    assert network.pxe_filter.left_open
    network.firewall.fail = lambda _call: False
    network.pxe_filter.fail_closed()
    assert not network.pxe_filter.left_open


def test_a_store_that_does_not_answer_for_a_moment_closes_nothing() -> None:
    network = Network()
    network.at = {
        2: lambda: setattr(network.pxe_filter._mac_sync, "_store", Broken()),
        5: lambda: setattr(network.pxe_filter._mac_sync, "_store", network.store),
        8: network.stop.set,
    }
    network.pxe_filter.campaign()
    assert network.records[-1].open
    assert not network.firewall.open


class Broken:
    """A store that is gone."""

    def read(self, _work: object) -> object:
        raise StoreUnavailableError("gone")


def test_any_other_error_closes_and_stops_the_process() -> None:
    network = Network()
    network.firewall.fail = lambda call: 1 / 0 if call == "load" else False  # type: ignore[return-value]
    with pytest.raises(ZeroDivisionError):
        network.pxe_filter.run()
    assert network.stop.is_set()
    assert network.firewall.calls[-1] == "close"
    assert not network.firewall.open
