"""Proxy DHCP beside a foreign server: a machine gets its address there and its boot file here, if it may boot."""

from __future__ import annotations

import socket

import msgspec
import pytest

from ferroscope.config.options import DatabaseSettings, PxeFilterSettings, Settings
from ferroscope.contrib.boot import dhcp_message, dhcp_probe
from ferroscope.contrib.boot.dhcp_message import OFFER, DhcpReply
from ferroscope.contrib.boot.pxe_filter.process import open_host
from tests.support.processes import until
from tests.support.pxe import foreign
from tests.support.pxe.clients import Client
from tests.support.pxe.filtered import FAST, FilteredLab
from tests.support.pxe.host import boot_settings
from tests.support.pxe.lab import Lab

IDLE, BUSY = "52:54:00:ab:00:01", "52:54:00:ab:00:02"
_BIOS, _X64, _ARM64, _IA32 = 0, 7, 11, 6


@pytest.fixture
def filtered(lab: Lab, postgresql_url: str) -> FilteredLab:
    """Return boot hosts that are proxies beside a server of somebody else; all of it runs."""
    foreign.serve(lab)
    built = FilteredLab(lab, postgresql_url, sections=FAST)
    for host in lab.hosts:
        host.configure(boot_settings(3, ranges=(), proxied_networks=("10.77.0.0/24",)))
        built.start(host)
    return built


def _answers(client: Client, architecture: int, *, ipxe: bool = False) -> dict[str, DhcpReply]:
    """Return the first answer of each server within two seconds."""
    question = dhcp_message.message(client.mac, 0, architecture=architecture, ipxe=ipxe)
    found: dict[str, DhcpReply] = {}
    with client.space.entered():
        for one in dhcp_probe.answers("eth0", client.mac, {7: question}, seconds=2):
            assert one.kind == OFFER
            found.setdefault(one.server, one)
    return found


def test_the_address_is_from_the_foreign_server_and_the_boot_file_from_the_open_host(filtered: FilteredLab) -> None:
    filtered.node(BUSY, booting=True)
    filtered.node(IDLE)
    busy, idle = filtered.lab.client(BUSY), filtered.lab.client(IDLE)
    first = filtered.wait_open()
    filtered.wait_applied()
    kinds = ((_BIOS, False, "undionly.kpxe"), (_BIOS, True, "boot.ipxe"), (_X64, True, "boot.ipxe"))
    for architecture, ipxe, file in kinds:
        found = _answers(busy, architecture, ipxe=ipxe)
        assert set(found) == {foreign.ADDRESS, first.address}
        assert foreign.is_its(found[foreign.ADDRESS].address)
        assert (found[first.address].address, found[first.address].boot_file) == ("", file)
        assert found[first.address].next_server == first.address
        assert found[first.address].vendor == "PXEClient"
    # Whoever may not boot gets an address, and hears nothing from any boot host.
    assert set(_answers(idle, _BIOS)) == set(_answers(idle, _X64)) == {foreign.ADDRESS}
    lease = idle.dhcp()
    assert lease is not None
    assert (lease.server, lease.boot_file) == (foreign.ADDRESS, "")
    assert first.pxe_filter is not None
    first.pxe_filter.kill()
    second = filtered.wait_open(but=first)
    assert until(lambda: set(_answers(busy, _BIOS)) == {foreign.ADDRESS, second.address})


def test_uefi_asks_once_more_on_port_4011_and_only_a_machine_that_may_boot_is_told(filtered: FilteredLab) -> None:
    filtered.node(BUSY, booting=True)
    filtered.node(IDLE)
    host = filtered.wait_open()
    filtered.wait_applied()
    for mac, address, told in ((BUSY, "10.77.0.201", True), (IDLE, "10.77.0.202", False)):
        client = filtered.lab.client(mac)
        client.space.ip("address", "add", f"{address}/24", "dev", "eth0")
        with client.space.entered():
            loaders = {
                kind: dhcp_probe.ask_proxy(host.address, mac, address, architecture=kind, seconds=2)
                for kind in (_X64, _ARM64, _IA32)
            }
        files = {kind: one.boot_file if one is not None else None for kind, one in loaders.items()}
        expected = {_X64: "ipxe.efi", _ARM64: "ipxe-arm64.efi", _IA32: ""}
        assert files == (expected if told else dict.fromkeys(expected)), mac


def test_which_host_is_open_is_known_from_the_database(filtered: FilteredLab, postgresql_url: str) -> None:
    settings = Settings(database=DatabaseSettings(connection=postgresql_url))
    filtered.wait_open()
    assert until(lambda: open_host(settings) == socket.gethostname())
    other = msgspec.structs.replace(settings, pxe_filter=PxeFilterSettings(network="other"))
    assert open_host(other) == ""
    assert open_host(Settings(database=DatabaseSettings(connection="postgresql://nobody@127.0.0.1:1/x"))) == ""


def test_the_foreign_server_is_found_and_our_own_answers_are_distinguished_from_it(filtered: FilteredLab) -> None:
    host = filtered.hosts[0]
    with host.space.entered():
        found = {one.address: one for one in dhcp_probe.servers("boot", seconds=4)}
    assert foreign.is_its(found[foreign.ADDRESS].offers)
    assert host.address not in found
    assert all(not one.offers for address, one in found.items() if address != foreign.ADDRESS)
