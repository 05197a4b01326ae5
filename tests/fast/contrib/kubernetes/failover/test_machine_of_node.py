"""Which machine the controller switches: what names it is corrected, mistaken, or shared, also with another cluster."""

from __future__ import annotations

import math
import uuid
from typing import Any

import msgspec
import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.machine_list import MachineList
from ferroscope.core.remediation import Remediation
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.support import examples


def test_a_node_without_a_lease_and_without_a_machine_waits_for_an_operator(site: Site) -> None:
    site.api.objects["leases"].clear()
    site.store.write(lambda tx: tx.nodes.remove(site.machine.uuid))
    task, leading = site.led(6)
    assert [one.reason for one in site.records()] == ["machine-unknown"]
    document = site.api.objects["nodes"]["n1"]
    document["metadata"]["annotations"] = {"ferroscope.io/confirmed-off": "boot-n1"}
    site.api.put("nodes", document)
    site.passes(task, leading, 3)
    assert site.api.objects["pods"] == site.api.objects["attachments"] == {}


@pytest.mark.parametrize("mistake", ["annotation", "provider ID", "copied"])
def test_a_mistaken_name_never_switches_off_the_machine_of_a_ready_node(site: Site, mistake: str) -> None:
    site.store.write(lambda tx: tx.nodes.remove(site.machine.uuid))
    of_n2 = str(uuid.UUID(int=2 << 100))
    identity = {"serial": None, "uuid": of_n2, "macs": []}
    other = examples.node(name="m2", internal={machine_identity.IDENTITY: identity})
    site.store.write(lambda tx: tx.nodes.add(other))
    healthy = site.api.objects["nodes"]["n2"]
    healthy["status"]["nodeInfo"]["systemUUID"] = of_n2
    site.api.put("nodes", healthy)
    failed = site.api.objects["nodes"]["n1"]
    if mistake == "provider ID":
        failed["spec"]["providerID"] = f"ferroscope://{other.uuid}"
    elif mistake == "annotation":
        failed["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    else:  # it reports nothing of its own, and n2 is the only one to contradict
        failed["status"]["nodeInfo"]["systemUUID"] = of_n2
    site.api.put("nodes", failed)
    site.passes(site.task(), site.lead(), 14)
    assert site.power.commands == []
    assert set(site.api.objects["pods"]) == {"db-0"}
    assert [one.reason for one in site.records()] == [
        "machine-shared" if mistake == "copied" else "machine-contradicts"
    ]


def _two_machines(site: Site) -> Any:
    """Have only the annotation of node n1 tell m1 from m2, which were never inspected, and name the wrong one."""
    other = examples.node(name="m2")
    uninspected = msgspec.structs.replace(site.machine, internal={})
    site.store.write(lambda tx: (tx.nodes.add(other), tx.nodes.update(uninspected)))
    failed = site.api.objects["nodes"]["n1"]
    failed["status"]["nodeInfo"]["systemUUID"] = str(uuid.UUID(int=4 << 100))
    site.power.identity_of = MachineIdentity(uuid=str(uuid.UUID(int=4 << 100)))
    failed["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    site.api.put("nodes", failed)
    asked, ask = [], site.power.state

    def state(machine: str) -> tuple[Power, bool | None]:
        asked.append(machine)
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    return other, asked


def _annotate(site: Site, name: str) -> None:
    node = site.api.objects["nodes"]["n1"]
    node["metadata"]["annotations"] = {"ferroscope.io/machine": name}
    site.api.put("nodes", node)


def test_an_annotation_that_is_corrected_in_time_counts_in_the_next_pass(site: Site) -> None:
    other, asked = _two_machines(site)
    site.power.silent = True
    task, leading = site.led(6)
    assert set(asked) == {other.uuid}
    _annotate(site, "m1")
    site.power.silent = False
    asked.clear()
    site.passes(task, leading, 8)
    assert set(asked) == {site.machine.uuid}
    assert site.power.commands == [False, True]
    assert [one.machine for one in site.records()] == [site.machine.uuid]


@pytest.mark.parametrize("change", ["inspected", "deleted", "maintenance"])
def test_where_reading_all_machines_takes_long_those_that_matter_are_read_in_each_pass(site: Site, change: str) -> None:
    other, _ = _two_machines(site)
    task, leading = site.task(), site.lead()
    task.step(leading)
    task._reader._machines._due_at = math.inf
    if change == "deleted":
        site.store.write(lambda tx: tx.nodes.remove(other.uuid))
    else:
        identity = {"serial": None, "uuid": str(uuid.UUID(int=5 << 100)), "macs": []}
        internal = {machine_identity.IDENTITY: identity} if change == "inspected" else {}
        changed = msgspec.structs.replace(other, internal=internal, maintenance=change == "maintenance")
        site.store.write(lambda tx: tx.nodes.update(changed))
    site.passes(task, leading, 5)
    assert site.power.commands == []
    reasons = {"inspected": "machine-contradicts", "deleted": "machine-unknown", "maintenance": "maintenance"}
    assert [one.reason for one in site.records()] == [reasons[change]]


def test_reading_all_machines_takes_a_fifth_of_the_time_at_most(site: Site) -> None:
    machines, read = MachineList(site.store, site.clock), []

    def progress() -> None:
        read.append(1)
        site.clock.now += 2.0

    assert machines.all(progress)[1]
    site.clock.now += 9.9
    assert not machines.all(progress)[1]
    site.clock.now += 0.1
    assert machines.all(progress)[1]
    assert len(read) == 2


@pytest.mark.parametrize("change", ["corrected", "deleted"])
def test_an_annotation_that_is_corrected_too_late_stops_and_undoes_the_command(site: Site, change: str) -> None:
    other, _ = _two_machines(site)
    task, leading = site.led(5)
    assert site.power.commands == [False]
    if change == "deleted":
        site.store.write(lambda tx: tx.nodes.remove(other.uuid))
    else:
        _annotate(site, "m1")
    site.passes(task, leading, 12)
    assert site.power.commands == ([False] if change == "deleted" else [False, True])
    assert set(site.api.objects["pods"]) == {"db-0"}
    (record,) = site.records()
    assert (record.machine, record.stopped) == (other.uuid, "machine-contradicts")
    assert bool(record.left_off) is (change == "deleted")
    told = [one["reason"] for one in site.api.events]
    assert "FailoverMachineContradicts" in told
    assert ("FailoverLeftOff" in told) is (change == "deleted")


@pytest.mark.parametrize("commanded", [False, True])
def test_a_machine_that_was_powered_off_for_another_clusters_node_is_left_to_it(site: Site, commanded: bool) -> None:
    other = Remediation(
        uuid=examples.uuid(), cluster="d", node="n9", node_uid="u", machine=site.machine.uuid, commanded=commanded
    )
    site.store.write(lambda tx: tx.remediations.save(other))
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands == ([] if commanded else [False, True])
    if commanded:
        (record,) = site.records()
        assert record.reason == "machine-shared"
        assert "n9 of cluster d" in record.message


@pytest.mark.parametrize(
    ("of_n1", "of_n2", "resolved"),
    [
        ({"redfish_address": "https://192.0.2.2:443"}, {"redfish_address": "https://192.0.2.2"}, []),
        ({"redfish_address": "https://bmc2.example"}, {"redfish_address": "https://192.0.2.2"}, ["192.0.2.2"]),
        ({"redfish_address": "https://192.0.2.2"}, {"ipmi_address": "192.0.2.2", "ipmi_port": 623}, []),
    ],
    ids=["port", "name", "protocol"],
)
@pytest.mark.parametrize("annotated", [False, True])
def test_a_bmc_that_is_spelled_differently_is_still_that_of_the_ready_machine(
    site: Site, of_n1: dict[str, Any], of_n2: dict[str, Any], resolved: list[str], annotated: bool
) -> None:
    """The machine of n1 has by mistake the BMC of the machine of n2, which is ready: that one must stay on."""
    identity = {"serial": None, "uuid": str(uuid.UUID(int=2 << 100)), "macs": []}
    other = examples.node(name="m2", driver_info=of_n2, internal={machine_identity.IDENTITY: identity})

    def work(tx: Transaction) -> None:
        tx.nodes.add(other)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(site.machine.uuid, lock=True), driver_info=of_n1))
        tx.addresses.set_bmc(site.machine.uuid, resolved)

    site.store.write(work)
    if annotated:
        _annotate(site, "m1")
    site.led(20)
    assert site.power.commands == []
    assert set(site.api.objects["pods"]) == {"db-0"}
    assert [one.reason for one in site.records()] == ["bmc-shared"]
