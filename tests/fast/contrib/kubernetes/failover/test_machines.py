"""Which machine a Kubernetes node runs on, and what a pod needs of a node."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import MACHINE as ANNOTATION
from ferroscope.contrib.kubernetes.failover.cluster import SERIAL, KubeNode
from ferroscope.contrib.kubernetes.failover.machine_list import machine_of
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine, MachineInventory, MachineMatch
from ferroscope.core import driver_info
from tests.fast.contrib.kubernetes.failover.build import MACHINE, SYSTEM_UUID, node, pod
from tests.support import examples
from tests.support.rows import each

_OTHER = ClusterMachine(
    uuid="aaaaaaaa-0000-4000-8000-000000000002", name="m2", serial="9ZZZZZ1", instance_uuid=str(uuid.UUID(int=9))
)
# Its values are stored, and all differ from those of MACHINE.
_INSPECTED = ClusterMachine(
    uuid="aaaaaaaa-0000-4000-8000-000000000003", name="m3", serial="5BBBBB1", instance_uuid=str(uuid.UUID(int=5)),
    system_uuid="4c4c4544-0051-4b10-8057-b7c04f4a0003",
)  # fmt: skip
_SWAPPED = str(uuid.UUID(bytes=uuid.UUID(SYSTEM_UUID).bytes_le))


def find(
    asked: KubeNode, machines: list[ClusterMachine], *others: KubeNode, held: dict[str, str] | None = None
) -> MachineMatch:
    return MachineInventory(machines, [asked, *others], held).find(asked)


@each(
    "given",
    [
        {},
        {"system_uuid": SYSTEM_UUID.upper()},
        {"system_uuid": _SWAPPED},
        {"annotations": {ANNOTATION: "m1"}},
        {"annotations": {ANNOTATION: MACHINE.uuid}, "system_uuid": ""},
        {"annotations": {SERIAL: "7QKWJY1"}, "system_uuid": ""},
        {"provider": f"ferroscope://{MACHINE.uuid}", "system_uuid": ""},
    ],
)
def test_a_node_is_mapped_by_each_thing_that_identifies_its_machine(given: dict[str, Any]) -> None:
    assert find(node(**given), [MACHINE, _OTHER]).machine == MACHINE


def _with(machine: ClusterMachine, unconfirmed: bool = False, **info: str) -> ClusterMachine:
    stored = examples.node(driver="redfish", driver_info=info)
    driver_info.confirm_bmc(stored, by_operator=not unconfirmed)
    return msgspec.structs.replace(machine, bmcs=machine_of(stored).bmcs)


@each(
    ("one", "other"),
    [
        ({"redfish_address": "https://192.0.2.7"}, {"redfish_address": "192.0.2.7"}),
        ({"redfish_address": "https://BMC7"}, {"redfish_address": "https://bmc7/", "redfish_system_id": "1"}),
        (
            {"redfish_address": "https://bmc7", "redfish_system_id": "1"},
            {"redfish_address": "https://bmc7", "redfish_system_id": "/redfish/v1/Systems/1"},
        ),
        ({"ipmi_address": "2001:db8::7"}, {"ipmi_address": "2001:DB8:0::7"}),
        ({"ipmi_address": "192.0.2.7"}, {"redfish_address": "https://192.0.2.7"}),
        ({"redfish_address": "https://192.0.2.7:443"}, {"redfish_address": "https://192.0.2.7"}),
        ({"redfish_address": "https://192.0.2.7"}, {"ipmi_address": "192.0.2.7", "ipmi_port": "623"}),
        ({"redfish_address": "https://localhost"}, {"redfish_address": "https://127.0.0.1:443"}),
        ({"redfish_address": "https://bmc7."}, {"ipmi_address": "BMC7", "allow_shared_bmc": "true"}),
    ],
)
def test_a_machine_whose_bmc_another_one_has_is_none(one: dict[str, str], other: dict[str, str]) -> None:
    match = find(node(), [_with(MACHINE, **one), _with(_OTHER, **other)])
    assert (match.machine, match.reason) == (None, "bmc-shared")
    # What a machine has told of itself, and nobody has confirmed, keeps no other one from being dealt with.
    assert find(node(), [_with(MACHINE, **one), _with(_OTHER, unconfirmed=True, **other)]).machine


@each(
    ("one", "other"),
    [
        ({"redfish_address": "https://192.0.2.7"}, {"redfish_address": "https://192.0.2.8"}),
        (
            {"redfish_address": "https://b", "redfish_system_id": "1"},
            {"redfish_address": "b", "redfish_system_id": "2"},
        ),
        ({"ipmi_address": "192.0.2.7", "ipmi_port": "6230"}, {"ipmi_address": "192.0.2.7", "ipmi_port": "6231"}),
        ({"redfish_address": "http://b:8001"}, {"redfish_address": "http://b:8002"}),
        ({}, {}),
    ],
)
def test_several_systems_at_one_address_are_several(one: dict[str, str], other: dict[str, str]) -> None:
    assert find(node(), [_with(MACHINE, **one), _with(_OTHER, **other)]).machine


def test_a_provider_id_may_have_the_instance_uuid() -> None:
    assert find(node(system_uuid="", provider=f"openstack:///{uuid.UUID(int=9)}"), [MACHINE, _OTHER]).machine == _OTHER


@each(
    ("given", "reason"),
    [
        ({"system_uuid": ""}, "machine-unknown"),
        ({"system_uuid": "03000200-0400-0500-0006-000700080009"}, "machine-unknown"),
        ({"annotations": {ANNOTATION: "m9"}}, "machine-unknown"),
        ({"annotations": {ANNOTATION: "m2"}}, "machine-contradicts"),
        ({"annotations": {SERIAL: "9ZZZZZ1"}}, "machine-contradicts"),
        ({"provider": f"x://{_OTHER.uuid}"}, "machine-contradicts"),
    ],
)
def test_no_machine_is_guessed(given: dict[str, Any], reason: str) -> None:
    match = find(node(**given), [MACHINE, _OTHER])
    assert (match.machine, match.reason) == (None, reason)
    assert match.message


@each(
    "given",
    [
        # One statement fits m3; another one fits no machine, and contradicts what is stored of m3.
        {"annotations": {ANNOTATION: "m3"}},
        {"annotations": {ANNOTATION: _INSPECTED.uuid.upper()}},
        {"annotations": {ANNOTATION: "m3", SERIAL: "8AAAAA1"}, "system_uuid": ""},
        {"annotations": {ANNOTATION: "m3"}, "system_uuid": "", "provider": f"openstack:///{uuid.UUID(int=6)}"},
        {"annotations": {SERIAL: "5BBBBB1"}},
        {"annotations": {SERIAL: "8AAAAA1"}, "system_uuid": _INSPECTED.system_uuid},
        {"provider": f"ferroscope://{_INSPECTED.uuid}"},
        {"provider": "ferroscope://m3"},
        {"provider": f"openstack:///{_INSPECTED.instance_uuid}"},
        {"provider": f"openstack:///{uuid.UUID(int=6)}", "system_uuid": _INSPECTED.system_uuid},
    ],
)
def test_a_machine_of_which_something_else_is_stored_is_not_a_match(given: dict[str, Any]) -> None:
    match = find(node(**given), [_INSPECTED])
    assert (match.machine, match.reason) == (None, "machine-contradicts")
    assert "m3" in match.message


@each("provider", [f"ferroscope://{uuid.UUID(int=6)}", "ferroscope://nobody"])
def test_an_own_provider_id_that_names_no_machine_is_a_mistake(provider: str) -> None:
    assert find(node(provider=provider), [MACHINE]).reason == "machine-unknown"


def test_what_another_system_calls_a_machine_and_is_not_stored_here_contradicts_nothing() -> None:
    assert find(node(provider=f"openstack:///{uuid.UUID(int=6)}"), [MACHINE]).machine == MACHINE
    assert find(node(provider="aws:///eu-west-1/i-1"), [MACHINE]).machine == MACHINE


@each("ready", ["True", "Unknown"])
@each(
    "other",
    [
        {},  # the same system UUID
        {"annotations": {ANNOTATION: "m1"}, "system_uuid": ""},
        {"annotations": {SERIAL: "7QKWJY1"}, "system_uuid": ""},
        {"annotations": {ANNOTATION: "m9"}},  # what it says fits no machine, but its system UUID this one
    ],
)
def test_a_machine_that_another_node_matches_belongs_to_none(other: dict[str, Any], ready: str) -> None:
    match = find(node(), [MACHINE, _OTHER], node("n2", ready, **other))
    assert (match.machine, match.reason) == (None, "machine-shared")
    assert "n2" in match.message


def test_a_machine_that_was_powered_off_for_another_node_belongs_to_none() -> None:
    assert find(node(), [MACHINE], held={MACHINE.uuid: "n2"}).reason == "machine-shared"
    assert find(node(), [MACHINE], held={MACHINE.uuid: "n1"}).machine == MACHINE


def test_two_machines_with_one_system_uuid_are_none() -> None:
    twin = msgspec.structs.replace(_OTHER, system_uuid=SYSTEM_UUID)
    assert find(node(), [MACHINE, twin]).reason == "machine-ambiguous"
    assert find(node(annotations={ANNOTATION: "m2"}), [MACHINE, twin]).machine == twin  # unless more is known
    named = node("n2", "True", annotations={ANNOTATION: "m2"})
    assert find(node(annotations={ANNOTATION: "m1"}), [MACHINE, twin], named).machine == MACHINE


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


@each(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"disk": "ssd"}}, True),
        ({"nodeSelector": {"disk": "hdd"}}, False),
        (_affinity({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}), True),
        (_affinity({"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]}), False),
        (_affinity({"matchExpressions": [{"key": "rack", "operator": "Exists"}]}), False),
        (_affinity({"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}), True),
        (_affinity({"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["8"]}]}), True),
        (_affinity({"matchExpressions": [{"key": "cpus", "operator": "Lt", "values": ["8"]}]}), False),
        (_affinity({"matchExpressions": [{"key": "disk", "operator": "Gt", "values": ["8"]}]}), False),
        (_affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}), False),
        (_affinity({}), False),
        (_affinity({}, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}), True),
    ],
)
def test_a_pod_fits_where_the_scheduler_would_let_it(wanted: dict[str, Any], fits: bool) -> None:
    assert pod(**wanted).fits(node("n2", "True", labels={"disk": "ssd", "cpus": "16"})) is fits


@each(
    ("toleration", "fits"),
    [
        (None, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "a"}, True),
        ({"key": "gpu", "value": "b"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
    ],
)
def test_a_taint_must_be_tolerated(toleration: dict[str, str] | None, fits: bool) -> None:
    tainted = node("n2", "True", taints=({"key": "gpu", "value": "a", "effect": "NoSchedule"},))
    assert pod(tolerations=[toleration] if toleration else []).fits(tainted) is fits
