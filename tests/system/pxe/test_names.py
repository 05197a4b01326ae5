"""Tables of several networks on one host: similar names, earlier releases, networks that were renamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.nftables import NftablesFilter, ruleset
from ferroscope.contrib.boot.pxe_filter.host_filters import instance_lock, remove_stale_tables, stale_tables
from ferroscope.runtime.system import SystemClock
from tests.support.processes import PATIENCE, until
from tests.support.pxe.filtered import FAST, READY, FilteredLab
from tests.support.pxe.lab import Lab
from tests.support.pxe.netns import Netns

UNKNOWN = "52:54:00:bf:00:01"


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Netns]:
    with Lab(tmp_path, hosts=1) as lab:
        yield lab.hosts[0].space


def test_networks_whose_names_differ_in_punctuation_only_have_a_table_each(space: Netns) -> None:
    names = ("rack-a", "rack_a", "rack.a", "a.b-c_d.e-f_g.hi")
    with space.entered():
        for number, name in enumerate(names):
            _pxe_filter(name, f"eth{number}").install()
        now = SystemClock().monotonic()
        assert _pxe_filter("rack.a", "eth2").hold(now + 5) > now
        assert all(f'iifname "eth{number}"' in _listed(space) for number in range(len(names)))
        _pxe_filter("rack-a", "eth0").remove()
        assert [name for name in names if f"ferroscope_pxe_{name} " in _listed(space)] == list(names[1:])


def test_the_table_of_an_earlier_release_is_replaced_and_that_of_another_network_is_not(space: Netns) -> None:
    with space.entered():
        _pxe_filter("rack_a", "boot").install()  # an earlier release called that of rack-a so
        _pxe_filter("rack_b", "other").install()
        _pxe_filter("rack-a", "boot", "mgmt").install()
        _pxe_filter("rack-b", "boot").install()
        assert "rack_a" not in _listed(space)
        assert "rack_b" in _listed(space)
        _pxe_filter("rack_c", "boot").install()
        _pxe_filter("rack-c", "boot").remove()
        assert "rack_c" not in _listed(space)


def test_a_pxe_filter_that_was_left_behind_is_found_and_taken_away_when_asked(space: Netns) -> None:
    settings = PxeFilterSettings(network="rack-b", interfaces=("boot",))
    with space.entered():
        for name, interface in (("rack-a", "boot"), ("rack-b", "boot"), ("rack-c", "mgmt"), ("rack-d", "mgmt")):
            _pxe_filter(name, interface).install()
        space.run("nft", "add", "table", "inet", "filter")
        with instance_lock("rack-d"):
            found = {one.table.removeprefix("ferroscope_pxe_"): one.interfaces for one in stale_tables(settings)}
            assert found == {"rack-a": ("boot",), "rack-c": ()}
            assert sorted(remove_stale_tables(settings)) == [
                "ferroscope_pxe_rack-a",
                "ferroscope_pxe_rack-c",
            ]
        assert "rack-b" in _listed(space)
        assert "rack-d" in _listed(space)
        assert "table inet filter" in _listed(space)


def test_a_backend_that_is_not_used_any_more_leaves_a_pxe_filter_that_is_found(space: Netns) -> None:
    with space.entered():
        _pxe_filter("rack-a", "boot").install()
        settings = PxeFilterSettings(network="rack-a", interfaces=("boot",), backends=("iptables",))
        assert [one.interfaces for one in stale_tables(settings)] == [("boot",)]


def test_after_an_upgrade_machines_boot_and_after_a_change_of_name_the_log_says_why_they_do_not(
    lab: Lab, postgresql_url: str
) -> None:
    filtered = FilteredLab(lab, postgresql_url, sections=FAST)
    host = lab.hosts[0]
    host.boot_closed(ruleset(FilterRules(network="rack_a", interfaces=("boot",))).encode())
    filtered.start(host, options="network = rack-a")
    assert until(lambda: filtered.record().open)
    prober = lab.prober()
    prober.add(UNKNOWN)
    assert prober.wait(UNKNOWN, seconds=READY) is not None
    assert host.pxe_filter is not None
    host.pxe_filter.end()
    filtered.start_pxe_filter(host, options="network = rack-b")
    assert until(lambda: "ferroscope_pxe_rack-a" in host.pxe_filter.output())  # type: ignore[union-attr]


def _pxe_filter(network: str, *interfaces: str) -> NftablesFilter:
    return NftablesFilter(FilterRules(network=network, interfaces=interfaces), clock=SystemClock(), timeout=PATIENCE)


def _listed(space: Netns) -> str:
    return space.run("nft", "list", "ruleset").stdout
