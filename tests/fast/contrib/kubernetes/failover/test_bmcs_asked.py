"""When the controller asks BMCs, how it waits for them, and for how long an answer counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.core.remediation import Phase, Proof
from ferroscope.db import Transaction
from ferroscope.hardware.machine_identity import MachineIdentity
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.support import examples
from tests.support.processes import PATIENCE


def test_the_bmcs_of_all_failed_nodes_are_asked_and_commanded_at_once(site: Site) -> None:
    other = node_document("n2", "Unknown")
    other["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    other["status"]["nodeInfo"]["systemUUID"] = examples.uuid()
    site.api.put("nodes", other)
    site.api.put("pods", pod_document("db-1", node="n2"))
    machine = examples.node(name="m2")
    site.power.identities[machine.uuid] = MachineIdentity(uuid=other["status"]["nodeInfo"]["systemUUID"])
    site.store.write(lambda tx: tx.nodes.add(machine))
    together = threading.Barrier(2, timeout=PATIENCE)  # one after the other would break it
    ask, command = site.power.state, site.power.set

    def state(machine: str) -> tuple[Power, bool | None]:
        together.wait()
        return ask(machine)

    def power(machine: str, *, on: bool, left: Callable[[], float]) -> None:
        together.wait()
        command(machine, on=on, left=left)

    site.power.state, site.power.set = state, power  # type: ignore[method-assign]
    site.passes(site.task(rules=FailoverRules(max_unhealthy="100%", dwell=1.0, silence=6.0)), site.lead(), 3)
    assert site.power.commands == [False, False]


def test_what_was_seen_too_long_ago_forces_nothing_and_the_bmc_is_asked_again(site: Site) -> None:
    task, leading = site.task(rules=FailoverRules(proof_age=3.0)), site.lead()
    write, slow = site.store.write, [4.0]

    def slowly(change: Callable[[Transaction], Any]) -> Any:
        done = write(change)
        if any(one.proof is Proof.POWER_OFF for one in site.records()) and slow:
            site.clock.now += slow.pop()
        return done

    site.store.write = slowly  # type: ignore[method-assign]
    while slow:
        site.passes(task, leading, 1)
    assert [one.phase for one in site.records()] == [Phase.EVACUATING]
    assert not [call for call in site.api.calls if call[0] == "DELETE"]
    site.passes(task, leading, 1)
    assert site.api.objects["pods"] == {}


def test_a_kubelet_that_comes_back_while_the_decision_is_stored_keeps_its_pods(site: Site) -> None:
    task, leading = site.task(), site.lead()
    write = site.store.write

    def meanwhile(change: Callable[[Transaction], Any]) -> Any:
        done = write(change)
        if any(one.proof is Proof.POWER_OFF for one in site.records()):
            site.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": "t2"}})
        return done

    site.store.write = meanwhile  # type: ignore[method-assign]
    site.passes(task, leading, 12)
    assert site.api.objects["pods"]
    assert "proof-ended" in [line["what"] for line in site.records()[0].log]


def test_a_bmc_that_is_silent_delays_only_its_own_node_and_is_asked_once(site: Site) -> None:
    other = node_document("n2", "Unknown")
    other["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    site.api.put("nodes", other)
    site.api.put("pods", pod_document("db-1", node="n2"))
    silent = examples.node(name="m2")
    site.store.write(lambda tx: tx.nodes.add(silent))
    released, asked, ask = threading.Event(), [], site.power.state

    # The first pass waits for so long at most.
    ticking = threading.Timer(0.3, lambda: setattr(site.clock, "now", site.clock.now + 2.0))

    def state(machine: str) -> tuple[Power, bool | None]:
        if machine == silent.uuid:
            asked.append(machine)
            ticking.start()
            released.wait(PATIENCE)
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    rules = FailoverRules(max_unhealthy="100%")
    task, leading = site.task(rules=rules), site.lead()
    try:
        site.passes(task, leading, 12)
        assert set(site.api.objects["pods"]) == {"db-1"}
        assert len(asked) == 1
        reasons = {one.node: one.reason for one in site.records()}
        assert reasons["n2"] == "bmc-error"
    finally:
        ticking.join()
        released.set()


def test_a_bmc_that_takes_its_time_to_answer_does_not_make_the_dwell_time_longer(site: Site) -> None:
    ask = site.power.state

    def state(machine: str) -> tuple[Power, bool | None]:
        site.clock.now += 1.2
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    site.led(1)
    (record,) = site.records()
    assert (record.started_at, record.not_before) == (
        site.clock.now - 1.2,
        site.clock.now - 1.2 + FailoverRules().dwell,
    )


def test_a_bmc_is_asked_when_its_answer_counts_and_not_a_moment_before(site: Site) -> None:
    asked, ask = [], site.power.state

    def state(machine: str) -> tuple[Power, bool | None]:
        asked.append(site.clock.now)
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 1, every=0.0)
    begin = site.clock.now
    for seconds, commands in ((10.0, []), (19.5, []), (20.0, [False])):  # the dwell time
        site.clock.now = begin + seconds
        task.step(leading)
        assert site.power.commands == commands
    for seconds in (21.0, 25.5):
        site.clock.now = begin + seconds
        task.step(leading)
        assert site.api.objects["pods"]
    site.clock.now = begin + 26.0  # 5 s after it was first seen off
    task.step(leading)
    assert site.api.objects["pods"] == {}
    assert asked == [begin + seconds for seconds in (0.0, 10.0, 20.0, 21.0, 26.0)]
