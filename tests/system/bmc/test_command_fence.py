"""The fence of commands in each driver: what it is about to send when the claim has ended does not reach the BMC."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.remote.command_fence import TooLateError, fence_commands, guard
from tests.support.faulty_proxy import FaultyProxy
from tests.support.ipmi import Simulator, simulator
from tests.support.processes import PATIENCE, is_halted, until
from tests.support.redfish import node_at
from tests.system.bmc.conftest import MakeBmc


class Claim:
    """Sure for a while, until it ``ends``; looked at so many times."""

    def __init__(self, *, looks: int = 1_000_000) -> None:
        self._looks = looks

    def left(self) -> float:
        self._looks -= 1
        return 5.0 if self._looks >= 0 else 0.0

    def ends(self) -> None:
        self._looks = 0


@pytest.fixture(scope="module")
def bmc_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Give a simulated BMC whose machine is on."""
    with simulator(tmp_path_factory.mktemp("ipmi")) as running:
        running.switch_on()
        yield running


def test_redfish_reads_and_then_commands_nothing(make_bmc: MakeBmc, proxy: FaultyProxy) -> None:
    """The claim ends while the BMC is asked what it allows, which comes before the command itself."""
    bmc, node, claim = make_bmc(), node_at(proxy.url, 7), Claim()
    assert bmc.get_power(node) is Power.OFF

    def ends(handler: Any) -> None:
        claim.ends()
        handler.answer(*handler.forwarded())

    proxy.will(ends, method="GET", path="/Systems/")
    with pytest.raises(TooLateError), fence_commands(claim.left):
        bmc.set_power(node, Power.ON)
    assert proxy.requests("POST", "Reset") == 0
    assert bmc.get_power(node) is Power.OFF
    with fence_commands(Claim().left):
        bmc.set_power(node, Power.ON)
    assert bmc.get_power(node) is Power.ON


def test_the_kernel_gives_up_what_it_cannot_deliver_when_the_claim_ends() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        with fence_commands(lambda: 2.5):
            guard(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500


def test_a_fenced_command_reaches_an_ipmi_bmc(bmc_at: Simulator) -> None:
    bmc, node = IpmiBmc(DriverOptions()), bmc_at.node()
    with fence_commands(Claim().left):
        bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
        bmc.set_power(node, Power.ON)
    assert bmc_at.commands[-2:] == ["boot pxe", "power 1"]
    assert bmc.get_power(node) is Power.ON


def test_a_name_may_stand_for_an_ipmi_bmc_of_a_fenced_command(bmc_at: Simulator) -> None:
    with fence_commands(Claim().left):
        IpmiBmc(DriverOptions()).set_power(bmc_at.node(ipmi_address="localhost", ipmi_cipher_suite=3), Power.ON)
    assert bmc_at.commands[-1] == "power 1"


@pytest.mark.parametrize("looks", [1, 3, 6])
def test_ipmi_commands_nothing_where_the_claim_ends_within_its_session(bmc_at: Simulator, looks: int) -> None:
    before = list(bmc_at.commands)
    with pytest.raises(TooLateError), fence_commands(Claim(looks=looks).left):
        IpmiBmc(DriverOptions()).set_power(bmc_at.node(ipmi_cipher_suite=3), Power.OFF)
    assert bmc_at.commands == before


def test_a_bmc_that_does_not_listen_is_distinguished_from_a_claim_that_ended(bmc_at: Simulator) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(BmcError), fence_commands(Claim().left):
        IpmiBmc(DriverOptions(command_timeout=2.0, command_tries=1)).set_power(bmc_at.node(ipmi_port=port), Power.OFF)


_COMMAND: Final = """
import json, sys, time
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc import DriverOptions
from ferroscope.core.model import Node
from ferroscope.remote.command_fence import TooLateError, fence_commands
from ferroscope.contracts.bmc import Power
node = Node(uuid="n", driver="ipmi", driver_info=json.loads(sys.argv[1]))
end = time.monotonic() + 2.0
try:
    with fence_commands(lambda: end - time.monotonic()):
        IpmiBmc(DriverOptions()).set_power(node, Power.OFF)
    print("sent")
except TooLateError:
    print("too late")
"""


class Between:
    """Passes datagrams on to a BMC, and back; ``first`` is called with the first one."""

    def __init__(self, bmc: int) -> None:
        self.first = lambda: None
        self.passed = 0
        self._near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._near.bind(("127.0.0.1", 0))
        self._far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._far.connect(("127.0.0.1", bmc))
        self.port: int = self._near.getsockname()[1]
        self._peer: Any = None
        for target in (self._forth, self._back):
            threading.Thread(target=target, daemon=True).start()

    def _forth(self) -> None:
        with suppress(OSError):
            while True:
                datagram, self._peer = self._near.recvfrom(65535)
                if not self.passed:
                    self.first()
                self.passed += 1
                self._far.send(datagram)

    def _back(self) -> None:
        with suppress(OSError):
            while True:
                self._near.sendto(self._far.recv(65535), self._peer)

    def close(self) -> None:
        self._near.close()
        self._far.close()


@contextmanager
def between(bmc: int) -> Iterator[Between]:
    one = Between(bmc)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_ipmitool_does_not_go_on_without_the_process_that_started_it(
    bmc_at: Simulator, number: signal.Signals, tmp_path: Path
) -> None:
    """The process alone is stopped or killed, with its command on the way; ipmitool is not."""
    before, said = list(bmc_at.commands), tmp_path / "said"
    with between(bmc_at.port) as path, said.open("w") as output:
        info = bmc_at.node(ipmi_port=path.port, ipmi_cipher_suite=3).driver_info
        stopped = threading.Event()

        def stop() -> None:
            os.kill(process.pid, number)
            if until(lambda: is_halted(process.pid)):
                stopped.set()

        path.first = stop
        process = subprocess.Popen([sys.executable, "-c", _COMMAND, json.dumps(info)], stdout=output)
        try:
            assert stopped.wait(PATIENCE)
            time.sleep(3.0)
            assert path.passed == 1
            os.kill(process.pid, signal.SIGCONT)
            process.wait(PATIENCE)
            assert until(lambda: number is signal.SIGKILL or said.read_text() == "too late\n")
            assert bmc_at.commands == before
        finally:
            process.kill()
            process.wait()
