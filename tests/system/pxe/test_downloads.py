"""A download over HTTP and a PXE filter that closes in the middle of it: that one goes on, and no other one begins."""

from __future__ import annotations

import socket

import pytest

from ferroscope.contrib.boot.pxe_filter import FilterBackend
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.contrib.boot.pxe_filter.backends.nftables import NftablesFilter
from ferroscope.runtime.system import SystemClock
from tests.support.processes import PATIENCE, until
from tests.support.pxe.lab import Lab

PORT = 8080
RULES = FilterRules(network="lab", interfaces=("boot",), http_ports=(PORT,))
RAMDISK = b"\0" * 8_000_000


def filter_of(name: str) -> FilterBackend:
    kind = NftablesFilter if name == "nftables" else IptablesFilter
    return kind(RULES, clock=SystemClock(), timeout=PATIENCE)


def hold(pxe_filter: FilterBackend) -> bool:
    now = SystemClock().monotonic()
    return pxe_filter.hold(now + 5) > now


@pytest.mark.parametrize("address", ["10.77.0.11", "fd77::11"])
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_running_download_outlives_the_closing_and_no_new_one_begins(lab: Lab, backend: str, address: str) -> None:
    space = lab.hosts[0].space
    with space.entered():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, PORT), family=family)
        pxe_filter = filter_of(backend)
        pxe_filter.install()
        assert until(lambda: hold(pxe_filter))
    with server, lab.wire.entered(), socket.create_connection((address, PORT), timeout=3) as client:
        running, _ = server.accept()
        with running, space.entered():
            running.settimeout(3)
            pxe_filter.close()
            with lab.wire.entered(), pytest.raises(TimeoutError):
                socket.create_connection((address, PORT), timeout=1.5)
            assert transferred(running, client) == len(RAMDISK)
            pxe_filter.remove()
    with lab.wire.entered(), pytest.raises(ConnectionRefusedError):  # nobody listens there now, and nothing guards it
        socket.create_connection((address, PORT), timeout=3)


def transferred(server: socket.socket, client: socket.socket) -> int:
    """Send the ramdisk; return how much of it arrived, giving up when nothing moves for three seconds."""
    sent = arrived = 0
    try:
        while arrived < len(RAMDISK):
            if sent < len(RAMDISK):
                sent += server.send(RAMDISK[sent : sent + 65536])
            client.settimeout(3)
            arrived += len(client.recv(65536))
    except TimeoutError:
        pass
    return arrived
