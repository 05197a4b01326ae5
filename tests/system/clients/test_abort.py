"""Aborting from every active state, by both APIs, with the published clients; for ``enrolling`` see test_discovery."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.examples import mac
from tests.support.processes import until
from tests.system.clients.site import Site

Abort = Callable[[Site, str], object]

CLIENTS: dict[str, Abort] = {
    "baremetal": lambda site, node: site.baremetal("node", "abort", node),
    "introspection": lambda site, node: site.openstack("baremetal", "introspection", "abort", node),
}
both = pytest.mark.parametrize("abort", CLIENTS.values(), ids=CLIENTS)


def _aborted(site: Site, node: str) -> None:
    site.await_state(node, "inspect failed")
    assert "aborted" in site.node(node)["last_error"]
    (newest, *_) = site.get(f"/v1/nodes/{node}/inspections")["inspections"]
    assert (newest["state"], newest["reason"]) == ("error", "aborted")


@both
def test_while_the_machine_is_started(site: Site, abort: Abort) -> None:
    machine = site.machine("timeout")
    node = site.enroll(machine)
    with site.workers_stopped():
        site.baremetal("node", "inspect", node)
        abort(site, node)
    _aborted(site, node)
    assert until(lambda: site.power_of(machine) == "power off")


@both
def test_while_its_data_is_processed_and_nothing_of_it_stays(site: Site, abort: Abort) -> None:
    address = mac()
    node = site.enroll_fake(address)
    site.inspect(node, until="inspect wait")
    with site.workers_stopped():
        assert site.call("ramdisk.call_back", api="bare_metal", bodies=[[address]]) == [{"uuid": node}]
        abort(site, node)
    _aborted(site, node)
    assert "cpu_arch" not in site.node(node)["properties"]
