"""A fleet runs as a process until a signal, and in a thread until its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from ferroscope_sim.client import FleetClient
from ferroscope_sim.model import FleetSettings
from ferroscope_sim.run import FleetThread
from tests.support.processes import PATIENCE

_PROGRAM = """
import logging, structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(open("/dev/null", "w")))
from ferroscope_sim.run import run
from ferroscope_sim.model import FleetSettings
totals = run(FleetSettings(nodes=3, boot_delay=60), ready=lambda places: print(places.control, flush=True))
print("counted", totals.power_ons, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_with_what_it_counted(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().decode().strip()
        with FleetClient(address) as client:
            for node in ("sim-0001", "sim-0002"):
                client.call("set_boot_device", node=node, device="pxe", persistent=False)
                client.call("set_power", node=node, power="power on")
            process.send_signal(number)
            assert process.stdout.read() == b"counted 2\n"
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 0


def test_a_taken_port_is_reported_to_whoever_starts_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=str(port)), FleetThread(FleetSettings(nodes=1, port=port)):
            pass


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (FleetSettings(nodes=1, callback_url="nonsense"), ValueError),
        (FleetSettings(nodes=1, special=("sim-0001",)), ValueError),
        (FleetSettings(nodes=1, inventory_file="/does/not/exist.json"), OSError),
    ],
)
def test_settings_that_make_no_sense_are_reported_to_whoever_starts_it(
    settings: FleetSettings, error: type[Exception]
) -> None:
    with pytest.raises(error), FleetThread(settings):
        pass


def test_a_fleet_listens_on_ipv6_too() -> None:
    with FleetThread(FleetSettings(nodes=1, host="::1")) as running, FleetClient(running.address) as client:
        assert running.address.startswith("[::1]:")
        assert client.status().machines == 1


def test_an_error_in_the_block_still_stops_the_fleet() -> None:
    with pytest.raises(KeyError), FleetThread(FleetSettings(nodes=1)) as running:
        raise KeyError(running.address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(running.address.split(":"), 1)  # type: ignore[arg-type]
