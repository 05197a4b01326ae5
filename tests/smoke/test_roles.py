"""Each role as a process of its own, one of which is killed: another one goes on, and nothing happens twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.outcomes import Counters
from ferroscope_sim.run import FleetThread
from tests.fast.contrib.kubernetes.failover.test_client import kubeconfig, node_document
from tests.support import databases
from tests.support.faulty_kubernetes import FaultyKubernetes
from tests.support.installation import Played, configuration
from tests.support.processes import free_port, until
from tests.support.real_service import Api

_MACHINES: Final = 6
_SETTINGS: Final = """
[drivers]
enabled = sim
command_timeout = 2
[lease]
profile = fast
[worker]
member_ttl = 3
[inspector]
"""


class Roles:
    """Processes of one configuration."""

    def __init__(self, directory: Path, url: str, more: str = "") -> None:
        self.directory = directory
        self.api = Api(f"http://127.0.0.1:{(port := free_port())}")
        self._config = directory / "ferroscope.conf"
        self._config.write_text(configuration(directory, port, _SETTINGS + more, database=url))
        self._ending = ExitStack()

    def start(self, name: str, role: str, *options: str) -> Played:
        """Start a process; ``wait_ready`` says when it is at work."""
        command = [sys.executable, "-m", "ferroscope", role, "-c", str(self._config), *options]
        played = Played(name, self.directory, command)
        self._ending.callback(played.end)
        return played

    def end(self) -> None:
        self._ending.close()


@contextmanager
def roles(directory: Path, url: str, more: str = "") -> Iterator[Roles]:
    """Give an installation whose processes end with the block."""
    installed = Roles(directory, url, more)
    try:
        yield installed
    finally:
        installed.end()


def test_inspections_finish_once_though_an_api_and_a_worker_are_killed(tmp_path: Path, database_url: str) -> None:
    with roles(tmp_path, database_url) as installed:
        apis, workers = [installed.start("api", "api")], [installed.start(f"worker-{n}", "worker") for n in (1, 2)]
        for process in (*apis, *workers):
            process.wait_ready()
        totals = _inspect_all(installed, workers[0], apis[0])
    # A machine whose callback was stored, but not answered, may be switched off before it repeats it.
    assert (totals.power_ons, totals.boots, totals.callbacks_refused) == (_MACHINES, _MACHINES, 0)


def _inspect_all(installed: Roles, worker: Played, api: Played) -> Counters:
    """Inspect all machines; kill the worker while it asks BMCs, and the api while ramdisks run."""
    settings = FleetSettings(
        nodes=_MACHINES, boot_delay=0.5, bmc_delay=0.2, callback_url=f"{installed.api.url}/v1/continue_inspection"
    )
    names = [member.name for member in roster(settings)]
    with FleetThread(settings) as fleet:
        enroll(roster(settings), api_url=installed.api.url, sim_address=fleet.address)
        for name in names:
            installed.api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
        assert until(lambda: fleet.fleet.totals.boots > 0)
        worker.kill()
        api.kill()
        api.start()
        api.wait_ready()
        assert until(lambda: {installed.api.node(name)["provision_state"] for name in names} == {"manageable"})
        for name in names:
            assert installed.api.node(name)["inspection_finished_at"] is not None
        return fleet.fleet.totals


def test_the_host_of_a_killed_pxe_filter_is_closed_until_the_next_one_opens(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.mkdir()
    more = f"[pxe_filter]\nbackends = dnsmasq\ndhcp_hostsdir = {hosts}\nnetwork = smoke-{os.getpid()}\n"
    with roles(tmp_path, databases.sqlite(tmp_path), more) as installed:
        first = installed.start("pxe-filter-1", "pxe-filter")
        first.wait_ready("filter open")
        first.kill()
        assert until(lambda: "ignore" in (hosts / "ferroscope-unknown").read_text()), "its watchdog closes it"
        second = installed.start("pxe-filter-2", "pxe-filter")
        second.wait_ready("filter open")
        assert second.stop() == 0
        assert "ignore" in (hosts / "ferroscope-unknown").read_text()


def test_a_failed_node_controller_leads_and_another_one_does_when_it_is_killed(tmp_path: Path) -> None:
    url = databases.sqlite(tmp_path)
    with FaultyKubernetes() as cluster:
        cluster.put("nodes", node_document("n1"))
        more = f"[failover]\nkubeconfig = {kubeconfig(cluster, tmp_path)}\n"
        with roles(tmp_path, url, more) as installed:
            controllers = [installed.start(f"failover-{number}", "failover") for number in (1, 2)]
            assert until(lambda: any(_leads(one) for one in controllers))
            first = next(one for one in controllers if _leads(one))
            (other,) = (one for one in controllers if one is not first)
            first.kill()
            assert until(lambda: _leads(other))
            assert other.stop() == 0


def _leads(process: Played, lease: str = "") -> bool:
    return any("leadership acquired" in line and lease in line for line in process.output().splitlines())


def test_periodic_tasks_of_a_killed_process_are_taken_over(tmp_path: Path) -> None:
    """A machine that never calls back times out although the process that would have ended its inspection is dead."""
    more = "timeout = 2\ntimeout_period = 0.5\n"
    with roles(tmp_path, databases.sqlite(tmp_path), more) as installed:
        processes = [installed.start("api", "api"), *(installed.start(f"worker-{n}", "worker") for n in (1, 2))]
        for process in processes:
            process.wait_ready()
        _, *workers = processes
        assert until(lambda: any(_leads(worker, "periodic/timeouts") for worker in workers))
        leader = next(worker for worker in workers if _leads(worker, "periodic/timeouts"))
        settings = FleetSettings(nodes=0, special=("sim-timeout-1",), boot_delay=0.1)
        with FleetThread(settings) as fleet:
            enroll(roster(settings), api_url=installed.api.url, sim_address=fleet.address)
            installed.api.call("PUT", "/v1/nodes/sim-timeout-1/states/provision", {"target": "inspect"})
            assert until(lambda: installed.api.node("sim-timeout-1")["provision_state"] == "inspect wait")
            leader.kill()
            assert until(lambda: installed.api.node("sim-timeout-1")["provision_state"] == "inspect failed")
