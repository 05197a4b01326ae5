"""The sim adapter over real TCP: it works, and whatever the other side does, it ends in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.sim.driver import SimBmc
from ferroscope.contracts.bmc import BootDevice, ListsNics, OutOfBand, Power, ReportsHealth
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.hardware import diff
from ferroscope_client.core.reasons import Reason
from ferroscope_client.hardware import health
from ferroscope_sim.client import FleetClient
from ferroscope_sim.inventory import document
from ferroscope_sim.model import FleetSettings
from ferroscope_sim.run import FleetThread
from tests.support.processes import PATIENCE, finished
from tests.system.sim.receiver import tcp_server

TIMEOUT = 0.4
OFF = b'{"ok":true,"power":"power off"}\n'


MakeBmc = Callable[..., SimBmc]


@pytest.fixture
def make_bmc() -> Iterator[MakeBmc]:
    """Return a function that makes adapters, whose connections are closed after the test."""
    with ExitStack() as stack:

        def make(*, timeout: float = TIMEOUT, idle: int = 8) -> SimBmc:
            return stack.enter_context(closing(SimBmc(DriverOptions(command_timeout=timeout), idle=idle)))

        yield make


def node_at(address: str, name: str = "sim-0001") -> Node:
    return Node(uuid=name, name=name, driver="sim", driver_info={"sim_address": address, "sim_node": name})


def fails(call: Callable[[], object]) -> BmcError:
    """Return the error of ``call``, while the simulator goes on as it is."""
    with pytest.raises(BmcError) as caught:
        finished(call)
    return caught.value


def test_power_and_boot_device_of_a_simulated_machine(make_bmc: MakeBmc) -> None:
    with FleetThread(FleetSettings(nodes=1)) as running:
        bmc = make_bmc()
        node = node_at(running.address)
        assert bmc.get_power(node) is Power.OFF
        assert bmc.get_boot_device(node) == (BootDevice.DISK, True)
        bmc.set_boot_device(node, BootDevice.BIOS, persistent=False)
        assert bmc.get_boot_device(node) == (BootDevice.BIOS, False)
        bmc.set_power(node, Power.ON)
        bmc.reboot(node)
        assert bmc.get_power(node) is Power.ON


def test_what_the_bmc_reports_agrees_with_the_ramdisk_and_has_the_health_of_the_outcome(make_bmc: MakeBmc) -> None:
    names = ("sim-failing-drive-1", "sim-failed-fan-1")
    with FleetThread(FleetSettings(nodes=1, special=names)) as running:
        bmc = make_bmc()
        assert isinstance(bmc, OutOfBand)
        assert isinstance(bmc, ReportsHealth)
        assert not isinstance(bmc, ListsNics)
        seen, full = bmc.inventory(node_at(running.address)), document(1)["inventory"]
        changes = diff.compare((full, {}), (seen, {}))
        assert {(one.kind, one.what, one.after) for one in changes} == {("nic", "changed", None)}
        states = {}
        for name in ("sim-0001", *names):
            report = bmc.health(node_at(running.address, name))
            known = health.read({"out_of_band": report})
            assert known is not None
            assert known.complete
            states[name] = (known.state, [part.kind for part in known.parts if part.health != "ok"], len(known.log))
            assert report["firmware"][0]["component"] == "bmc"
    assert states == {
        "sim-0001": ("ok", [], 0),
        "sim-failing-drive-1": ("warning", ["drive"], 1),
        "sim-failed-fan-1": ("critical", ["fan"], 2),
    }


def test_a_machine_that_is_not_there_is_a_permanent_failure(make_bmc: MakeBmc) -> None:
    with FleetThread(FleetSettings(nodes=1)) as running:
        error = fails(lambda: make_bmc().get_power(node_at(running.address, "sim-9")))
        assert not error.transient
        assert "no machine named 'sim-9'" in str(error)


def test_calls_share_one_connection(make_bmc: MakeBmc) -> None:
    def echo(peer: socket.socket) -> None:
        while peer.recv(1000):
            peer.sendall(OFF)

    with tcp_server(echo) as (address, connections):
        bmc = make_bmc()
        for _ in range(20):
            assert bmc.get_power(node_at(address)) is Power.OFF
        assert connections == [1]


def test_threads_never_get_each_others_answers(make_bmc: MakeBmc) -> None:
    names = tuple(f"sim-ok-{number}" for number in range(8))
    with FleetThread(FleetSettings(nodes=0, special=names)) as running:
        bmc = make_bmc(idle=2)
        odd = [number for number in range(8) if number % 2]
        for number in odd:
            bmc.set_power(node_at(running.address, names[number]), Power.ON)

        def check(number: int) -> bool:
            return all(
                (bmc.get_power(node_at(running.address, names[number])) is Power.ON) == (number in odd)
                for _ in range(200)
            )

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(check, range(8)))


def test_a_simulator_that_is_not_there_is_transient(make_bmc: MakeBmc) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    error = fails(lambda: make_bmc().get_power(node_at(address)))
    assert error.transient
    assert error.reason is Reason.BMC_CONNECTION_REFUSED


def test_a_server_that_does_not_accept_ends_at_the_deadline(make_bmc: MakeBmc) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        time.sleep(0.05)
        error = fails(lambda: make_bmc().get_power(node_at(f"127.0.0.1:{address[1]}")))
        assert error.transient
        for filler in fillers:
            filler.close()


def test_a_frozen_server_ends_at_the_deadline_and_the_connection_is_not_used_again(make_bmc: MakeBmc) -> None:
    pxe_filter = threading.Event()

    def freeze_first(peer: socket.socket) -> None:
        peer.recv(1000)
        pxe_filter.wait(TIMEOUT + 0.2)
        peer.sendall(OFF)
        peer.recv(1000)

    with tcp_server(freeze_first) as (address, connections):
        bmc = make_bmc()
        error = fails(lambda: bmc.get_power(node_at(address)))
        assert error.transient
        assert "timed out" in str(error)
        pxe_filter.set()
        assert bmc.get_power(node_at(address)) is Power.OFF
        assert connections == [1, 2]


@pytest.mark.parametrize("pause", [0.05, 10.0])
def test_half_a_line_or_a_trickle_ends_at_the_deadline(pause: float, make_bmc: MakeBmc) -> None:
    ended = threading.Event()

    def trickle(peer: socket.socket) -> None:
        peer.recv(1000)
        while not ended.is_set():
            peer.sendall(b" ")
            ended.wait(pause)

    with tcp_server(trickle) as (address, _):
        error = fails(lambda: make_bmc().get_power(node_at(address)))
        ended.set()
        assert error.transient


@pytest.mark.parametrize("said", ['"half"', "null", '"Power Off"', "absent"])
def test_a_power_state_that_is_none_is_unknown(said: str, make_bmc: MakeBmc) -> None:
    answer = b'{"ok":true}\n' if said == "absent" else f'{{"ok":true,"power":{said}}}\n'.encode()

    def babble(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(answer)
        peer.recv(1000)

    with tcp_server(babble) as (address, _):
        assert make_bmc().get_power(node_at(address)) is Power.UNKNOWN


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>\n",
        b"[]\n",
        b'{"ok":"yes"}\n',
        OFF + OFF,
        b"x" * 100_000,
    ],
)
def test_garbage_is_a_permanent_failure(answer: bytes, make_bmc: MakeBmc) -> None:
    def babble(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(answer)
        peer.recv(1000)

    with tcp_server(babble) as (address, _):
        error = fails(lambda: make_bmc().get_power(node_at(address)))
        assert not error.transient


@pytest.mark.parametrize("beginning", [b"", b'{"ok":tr'])
def test_a_connection_closed_by_the_other_side_is_transient(beginning: bytes, make_bmc: MakeBmc) -> None:
    def hang_up(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(beginning)

    with tcp_server(hang_up) as (address, connections):
        error = fails(lambda: make_bmc().get_power(node_at(address)))
        assert error.transient
        assert "connection closed" in str(error)
        assert connections == [1]


def test_a_stale_connection_is_replaced_once_and_nobody_notices(make_bmc: MakeBmc) -> None:
    def once(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(OFF)

    with tcp_server(once) as (address, connections):
        bmc = make_bmc()
        for _ in range(5):
            assert bmc.get_power(node_at(address)) is Power.OFF
        assert len(connections) == 5


def test_a_lost_simulator_is_tried_again_only_once_per_call(make_bmc: MakeBmc) -> None:
    answers = iter([OFF])

    def once_ever(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(next(answers, b""))

    with tcp_server(once_ever) as (address, connections):
        bmc = make_bmc()
        bmc.get_power(node_at(address))
        assert fails(lambda: bmc.get_power(node_at(address))).transient
        assert connections == [1, 2]


def test_no_more_connections_are_kept_than_asked_for(make_bmc: MakeBmc) -> None:
    barrier = threading.Barrier(4)
    opened: list[socket.socket] = []

    def together(peer: socket.socket) -> None:
        opened.append(peer)
        while peer.recv(1000):
            barrier.wait(PATIENCE)
            peer.sendall(OFF)

    with tcp_server(together) as (address, connections):
        bmc = make_bmc(idle=1)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: bmc.get_power(node_at(address)), range(4)))
            list(pool.map(lambda _: bmc.get_power(node_at(address)), range(4)))
        assert len(connections) == 7
        bmc.close()


def test_no_more_connections_are_kept_than_a_process_can_have() -> None:
    settings = FleetSettings(nodes=12, subnet=4)
    with FleetThread(settings) as running, closing(SimBmc(DriverOptions(command_timeout=TIMEOUT), most=5)) as bmc:
        nodes = [node_at(address, name) for name, address in running.bmcs.items()]
        for node in [*nodes, *nodes]:
            assert bmc.get_power(node) is Power.OFF
        before = _descriptors()
    assert before - _descriptors() >= 2 * 5  # both ends of each are in this process


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("sim-bmc-refused-1", Reason.BMC_CONNECTION_REFUSED), ("sim-bmc-black-hole-1", Reason.BMC_UNREACHABLE)],
)
def test_a_bmc_that_cannot_be_reached_works_until_faults_are_on_and_again_after_them(
    make_bmc: MakeBmc, name: str, reason: Reason
) -> None:
    with (
        FleetThread(FleetSettings(nodes=1, special=(name,), bmc_faults=False)) as running,
        FleetClient(running.address) as client,
    ):
        bmc = make_bmc()
        node, healthy = node_at(running.bmcs[name], name), node_at(running.bmcs["sim-0001"])
        for _ in range(2):
            assert bmc.get_power(node) is Power.OFF
            client.faults(on=True)
            error = fails(lambda: bmc.get_power(node))
            assert error.transient
            assert error.reason is reason
            assert bmc.get_power(healthy) is Power.OFF
            client.faults(on=False)
