"""Servers boot the real agent in our ramdisk, and what is told where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope_client.client import node_path
from tests.support.boot.checks import check_collectors, check_end
from tests.support.boot.site import API, BootSite, plan
from tests.support.boot.ways import PLANS, inspected
from tests.support.pxe.lab import SWITCH, SWITCH6

pytestmark = pytest.mark.timeout(7200)


@pytest.mark.parametrize(
    ("way", "memory", "address"),
    [("bios-pxe", 512, SWITCH), ("uefi-http-ipv6", 1024, f"[{SWITCH6}]"), ("bios-pxe-relayed", 512, SWITCH)],
)
def test_a_machine_is_inspected_by_the_real_agent_and_its_page_shows_what_collectors_say(
    tmp_path: Path, postgresql_url: str, ramdisk: Path, way: str, memory: int, address: str
) -> None:
    kernel = f"ferroscope.collectors=smart,http://{address}:8081/list"
    with BootSite(tmp_path, postgresql_url, ramdisk, plan(kernel=kernel, **PLANS.get(way, {}))) as site:
        machine = inspected(site, way, memory=memory)
        assert "ironic_python_agent.inspector" in machine.console.text  # it says so before it calls back
        stored = site.api.get(node_path(machine.name, "inventory"))
        node = site.node(machine.name)
        check_collectors(stored["plugin_data"]["collectors"], f"{site.api.url}/ui/machines/{node['uuid']}")
        check_end(site, machine)


def test_the_agent_proves_itself_by_its_token_while_no_worker_runs(
    tmp_path: Path, postgresql_url: str, ramdisk: Path
) -> None:
    # What it does beside its callback, which is not needed for an inspection, requires the address of the API.
    with BootSite(tmp_path, postgresql_url, ramdisk, plan(kernel=f"ipa-api-url={API}")) as site:
        api, worker = site.processes
        machine = site.add("vm1", firmware="bios")
        site.inspect(machine)
        site.until_step(machine, "boot-script")
        worker.freeze()
        site.until(machine, lambda: _beats(api.output()), "its heartbeat is accepted")
        worker.thaw()
        assert site.until_done(machine) == "manageable", site.told(machine)
        check_end(site, machine)


def test_a_slow_network_that_loses_frames_delays_an_inspection_and_does_not_fail_it(
    tmp_path: Path, postgresql_url: str, ramdisk: Path
) -> None:
    with BootSite(tmp_path, postgresql_url, ramdisk, plan()) as site:
        machine = site.add("vm1", firmware="bios")
        site.slow_down(machine, megabits=50, lost=200)
        site.inspect(machine)
        assert site.until_done(machine) == "manageable", site.told(machine)
        check_end(site, machine)


def _beats(log: str) -> bool:
    return any("/v1/heartbeat/" in line and "status=202" in line for line in log.splitlines())
