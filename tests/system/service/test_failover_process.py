"""``ferroscope failover`` as a process, on a small API server."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.hardware import machine_identity
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.test_client import kubeconfig, node_document
from tests.support import databases, examples
from tests.support.faulty_kubernetes import FaultyKubernetes, hanging
from tests.support.installation import Played
from tests.support.processes import free_port, until


def test_after_a_step_that_hung_the_next_one_still_asks_bmcs(tmp_path: Path) -> None:
    url = databases.sqlite(tmp_path)
    backend = open_backend(
        Settings(database=DatabaseSettings(connection=url)), clock=SystemClock(), stop=threading.Event(), listen=False
    )
    identity = {"serial": None, "uuid": SYSTEM_UUID, "macs": []}
    bmc = {"redfish_address": f"http://127.0.0.1:{free_port()}"}
    machine = examples.node(
        name="m1", driver="redfish", driver_info=bmc, internal={machine_identity.IDENTITY: identity}
    )
    backend.store.write(lambda tx: tx.nodes.add(machine))
    with FaultyKubernetes() as api:
        config = tmp_path / "ferroscope.conf"
        config.write_text(
            f"[database]\nconnection = {url}\n[drivers]\nenabled = redfish\ncommand_timeout = 1\n"
            "bmc_networks = 127.0.0.0/8\n"
            f"[lease]\nprofile = fast\n[failover]\nkubeconfig = {kubeconfig(api, tmp_path)}\n"
            "request_timeout = 6\ndwell = 1\n"
        )
        api.put("nodes", node_document("n2"))
        process = Played("failover", tmp_path, [sys.executable, "-m", "ferroscope", "failover", "-c", str(config)])
        try:
            process.wait_ready()
            assert until(lambda: "leadership acquired" in process.output())
            dead = node_document("n1", "Unknown")
            dead["status"]["nodeInfo"]["systemUUID"] = SYSTEM_UUID
            api.fail("/leases", hanging)
            api.put("nodes", dead)
            assert until(lambda: "the work has not stopped" in process.output())
            # The thread of the step that hung ends when its call times out, and closes what it has used.
            assert until(lambda: "cannot read the cluster" in process.output())
            assert until(lambda: process.output().count("leadership acquired") == 2)

            def asked() -> bool:
                found = backend.store.read(lambda tx: tx.remediations.active("default"))
                return [one.reason for one in found] == ["bmc-error"]

            api.put("pods", {"metadata": {"name": "db-0", "namespace": "default", "uid": "u1", "resourceVersion": "1"},
                             "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})  # fmt: skip
            assert until(asked), process.output()[-2000:]
            assert process.alive
            assert "periodic task failed" not in process.output()
        finally:
            api.released.set()
            process.end()
            backend.close()
