"""The lab itself: what it would see if two hosts were open, and that nothing of it remains."""

from __future__ import annotations

import time

import pytest

from tests.support.processes import until
from tests.support.pxe.filtered import READY
from tests.support.pxe.host import boot_settings
from tests.support.pxe.lab import Lab
from tests.support.pxe.prober import doubles

MAC = "52:54:00:aa:00:01"


def test_the_prober_sees_two_servers_that_answer_at_the_same_instant(lab: Lab) -> None:
    for host in lab.hosts[:2]:
        host.start_dnsmasq()
    prober = lab.prober()
    prober.add(MAC)
    assert prober.wait(MAC, seconds=READY)
    time.sleep(0.5)
    prober.remove(MAC)
    prober.look()
    assert {answer.server for answer in prober.answers} == {lab.hosts[0].address, lab.hosts[1].address}
    assert len(doubles(prober.answers)) >= 5


@pytest.mark.parametrize(("order", "at_least", "at_most"), [("spread", 20, 30), ("sequential", 1, 1)])
def test_machines_that_ask_at_the_same_time_are_offered_addresses_of_their_own_where_they_are_spread(
    lab: Lab, order: str, at_least: int, at_most: int
) -> None:
    host = lab.hosts[0]
    host.configure(boot_settings(3, address_order=order))
    host.start_dnsmasq()
    prober = lab.prober()
    macs = [f"52:54:00:aa:01:{number:02x}" for number in range(30)]
    prober.once(*macs)
    assert until(lambda: len(prober.since(0.0)) == 30)
    assert at_least <= len({answer.address for answer in prober.answers}) <= at_most


def test_a_machine_behind_a_relay_gets_an_address_of_its_own_network_and_the_way_out_of_it(lab: Lab) -> None:
    """https://github.com/danderson/pixiecore/pull/30."""
    host = lab.hosts[1]
    host.configure(boot_settings(3, ranges=("10.77.0.50-10.77.0.229", "10.80.0.50-10.80.0.109/24@10.80.0.1")))
    host.start_dnsmasq()
    lease = lab.relayed_client(MAC, host).dhcp(seconds=5)
    assert lease is not None
    assert lease.server == host.address
    # The second third of the range is this host's.
    assert 70 <= int(lease.address.removeprefix("10.80.0.")) <= 89
