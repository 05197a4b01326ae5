"""Who gets an answer: machines under inspection, of both kinds of DHCP, from one host; known idle ones never."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import databases
from tests.support.processes import until
from tests.support.pxe.bmc import Switch
from tests.support.pxe.filtered import READY
from tests.support.pxe.host import boot_settings
from tests.support.pxe.prober import Prober, doubles
from tests.support.pxe.site import Plan, Site
from tests.support.servers import Server

IDLE, BUSY, LATER, UNKNOWN, WATCHED = (f"52:54:00:bb:00:0{number}" for number in range(1, 6))
# From the api's word to the filter's deed, with a channel; without one it is the polling period.
BOUND = 2.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, shared_postgresql: Server) -> Iterator[Site]:
    """Give an installation with a node that is idle."""
    plan = Plan(options="unknown_hosts = deny\n[lease]\nprofile = fast\n")
    with databases.fresh(shared_postgresql) as url, Site(tmp_path_factory.mktemp("site"), url, plan) as built:
        for name in ("idle", "busy", "later", "watched"):
            built.machines[name] = Switch()
        built.enroll("idle", IDLE)
        yield built


@pytest.fixture(scope="module")
def prober(site: Site) -> Prober:
    """Return what asks all hosts of the installation; tests tell it for whom, and for how long."""
    return site.lab.prober()


def test_a_machine_gets_answers_exactly_while_it_is_inspected(site: Site) -> None:
    client = site.lab.client(BUSY)
    switch = site.machines["busy"]
    site.enroll("busy", BUSY)
    assert client.dhcp() is None
    site.provision("busy", "inspect")
    assert until(lambda: switch.on)
    # The power-on waited for the filter, so the machine need not ask twice.
    lease, lease6 = client.dhcp(), client.dhcp6()
    assert lease is not None, site.timeline("busy")
    assert lease6 is not None
    site.call_back(BUSY)
    site.until_state("busy", "manageable")
    time.sleep(BOUND)
    assert client.dhcp() is None
    assert client.dhcp6() is None


def test_a_known_idle_machine_gets_no_answer_of_either_kind(site: Site) -> None:
    client = site.lab.client(IDLE)
    assert client.dhcp(seconds=3) is None
    assert client.dhcp6() is None


def test_an_unknown_machine_gets_no_answer_where_unknown_ones_are_kept_out(site: Site, prober: Prober) -> None:
    site.enroll("watched", WATCHED)
    site.provision("watched", "inspect")
    prober.add(WATCHED)
    site.open_host(prober, WATCHED)  # somebody is let in, so it is not just closed
    assert site.lab.client(UNKNOWN).dhcp() is None
    prober.remove(WATCHED)


def test_one_host_answers_and_another_one_when_dnsmasq_or_filter_of_the_first_ends(site: Site, prober: Prober) -> None:
    site.enroll("later", LATER)
    site.provision("later", "inspect")
    prober.add(LATER, IDLE)
    first = site.open_host(prober, LATER)
    first.kill_dnsmasq()
    assert prober.quiet(LATER, seconds=1.0)[5:] == []
    first.start_dnsmasq()
    assert site.open_host(prober, LATER) is first
    assert first.pxe_filter is not None
    assert first.pxe_filter.stop() == 0
    second = site.open_host(prober, LATER)
    assert second is not first
    site.start_pxe_filter(first)
    second.pxe_filter.kill()  # type: ignore[union-attr]
    # The kernel lets the filter of a dead process stand open for what was left, and closes it then.
    assert prober.wait(LATER, seconds=READY, server=lambda server: server != second.address)
    assert prober.quiet(LATER, seconds=0.5)[-1].server != second.address
    site.start_pxe_filter(second)
    prober.remove(LATER, IDLE)
    prober.look()
    assert doubles(prober.answers) == []
    assert [answer for answer in prober.answers if answer.mac == IDLE] == []


def test_an_unknown_machine_gets_an_answer_where_unknown_ones_are_let_in(tmp_path: Path, postgresql_url: str) -> None:
    plan = Plan(
        hosts=1,
        options="unknown_hosts = allow\n[lease]\nprofile = fast\n"
        "[auto_discovery]\nenabled = true\ndriver = fake-hardware\n",
    )
    with Site(tmp_path, postgresql_url, plan) as site:
        client = site.lab.client(UNKNOWN)
        assert until(lambda: client.dhcp() is not None)


def test_behind_a_relay_the_machine_counts_and_not_the_relay(tmp_path: Path, postgresql_url: str) -> None:
    plan = Plan(hosts=1, options="unknown_hosts = deny\nrelayed_networks = 10.80.0.0/24\n[lease]\nprofile = fast\n")
    with Site(tmp_path, postgresql_url, plan) as site:
        (host,) = site.hosts
        host.kill_dnsmasq()
        host.configure(boot_settings(1, ranges=("10.77.0.50-10.77.0.229", "10.80.0.50-10.80.0.109/24@10.80.0.1")))
        host.start_dnsmasq()
        site.machines["far"] = Switch()
        site.enroll("far", BUSY)
        client = site.lab.relayed_client(BUSY, host)
        assert client.dhcp() is None
        site.provision("far", "inspect")
        assert until(lambda: site.machines["far"].on)
        assert client.dhcp(seconds=5) is not None
