"""``ferroscope failover`` as a process, on a small API server."""

from __future__ import annotations

import socketserver
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.bmc import Power
from ferroscope.hardware import machine_identity
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_sim.protocol import read, write
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.test_client import kubeconfig, node_document, pod_document
from tests.support import databases, examples
from tests.support.faulty_kubernetes import FaultyKubernetes, hanging
from tests.support.installation import Played
from tests.support.processes import HOURS, free_port, until
from tests.support.speed import slowness

_PROOF_AGE: Final = 2.0 * slowness()
_SILENCE: Final = HOURS


class _Bmcs(socketserver.ThreadingTCPServer):
    """BMCs of the simulator's kind, of machines that are on; the one of ``silent`` reads, and does not answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Bmc)
        self.off: set[str] = set()
        self.said_off: dict[str, float] = {}
        self.asked: dict[str, int] = {}
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _Bmc(socketserver.StreamRequestHandler):
    server: _Bmcs

    def handle(self) -> None:
        for line in self.rfile:
            call = read(line)
            name = call.node or ""
            self.server.asked[name] = self.server.asked.get(name, 0) + 1
            if name == "silent":
                self.server.over.wait(_SILENCE)
                return
            if call.op == "set_power":
                (self.server.off.discard if call.power == Power.ON else self.server.off.add)(name)
                self.wfile.write(write())
                continue
            if name in self.server.off:
                self.server.said_off[name] = time.monotonic()
            self.wfile.write(write(power=Power.OFF if name in self.server.off else Power.ON))


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


def test_a_bmc_that_is_silent_for_hours_does_not_delay_another_node_or_age_its_proof(tmp_path: Path) -> None:
    with _Bmcs() as bmcs, FaultyKubernetes() as api, _failover(tmp_path, api, bmcs) as process:
        assert until(lambda: "leadership acquired" in process.output())
        _free(api, bmcs, "first")
        api.put("nodes", _dead("silent"))
        api.put("pods", pod_document("db-silent", node="silent"))
        _free(api, bmcs, "second")
        # The silent one has been asked meanwhile, and holds its first question still.
        assert bmcs.asked["silent"] == 1
        assert "db-silent" in api.objects["pods"]


def _free(api: FaultyKubernetes, bmcs: _Bmcs, name: str) -> None:
    """Let a node die, and wait until its pod is deleted."""
    at: list[float] = []

    def delete(call: Any) -> None:
        at.append(time.monotonic())
        call._route(call.path)

    api.fail(f"/pods/db-{name}", delete)
    api.put("pods", pod_document(f"db-{name}", node=name))
    api.put("nodes", _dead(name))
    assert until(lambda: f"db-{name}" not in api.objects["pods"])
    assert at[0] <= bmcs.said_off[name] + _PROOF_AGE, "the controller must not use an older proof"


def _dead(name: str) -> dict[str, Any]:
    document = node_document(name, "Unknown")
    document["metadata"]["annotations"] = {"ferroscope.io/machine": name}
    document["status"]["nodeInfo"]["systemUUID"] = _system_uuid(name)
    return document


def _system_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


@contextmanager
def _failover(directory: Path, api: FaultyKubernetes, bmcs: _Bmcs) -> Iterator[Played]:
    """Run a controller of a cluster whose nodes are on machines of the same names."""
    url = databases.sqlite(directory)
    settings = Settings(database=DatabaseSettings(connection=url))
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    for number, name in enumerate(("first", "second", "silent")):
        bmc = f"192.0.2.{number}"
        address = {"sim_address": f"127.0.0.1:{bmcs.server_address[1]}", "sim_node": name, "sim_bmc_address": bmc}
        identity = {"serial": None, "uuid": _system_uuid(name), "macs": [], "bmcs": [bmc]}  # the ramdisk has read it
        internal = {machine_identity.IDENTITY: identity}
        machine = examples.node(name=name, driver="sim", driver_info=address, internal=internal)
        backend.store.write(lambda tx, machine=machine: tx.nodes.add(machine))  # type: ignore[misc]
    backend.close()
    config = directory / "ferroscope.conf"
    config.write_text(
        f"[database]\nconnection = {url}\n[drivers]\nenabled = sim\ncommand_timeout = {_SILENCE:g}\n"
        f"[lease]\nprofile = fast\n[failover]\nkubeconfig = {kubeconfig(api, directory)}\n"
        f"dwell = 1\nmax_unhealthy = 100%\nproof_age = {_PROOF_AGE:g}\n"
    )
    api.put("nodes", node_document("healthy"))
    process = Played("failover", directory, [sys.executable, "-m", "ferroscope", "failover", "-c", str(config)])
    try:
        process.wait_ready()
        yield process
    finally:
        api.released.set()
        bmcs.over.set()
        process.end()
