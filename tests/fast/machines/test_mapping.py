"""The pure part: fields and their three values, credentials, the summary, and the schema of the custom resource."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core.model import Node
from ferroscope.machines import mapping, objects
from ferroscope.machines.mapping import Login, SpecError
from ferroscope.machines.objects import Machine, Status
from tests import ROOT

_CRDS = ROOT / "deploy/kubernetes/crds"
_TEXTS = st.sampled_from(["", "x", "y", "z"])


def machine(spec: dict[str, Any] | None = None, **status: Any) -> Machine:
    metadata = {"name": "a", "namespace": "lab", "uid": "u-1"}
    document = {"metadata": metadata, "spec": {"bmc": {"driver": "redfish"}, **(spec or {})}, "status": status}
    return msgspec.convert(document, Machine)


@given(wish=_TEXTS, has=_TEXTS, agreed=_TEXTS)
def test_of_three_values_the_one_that_changed_wins_and_two_changes_are_told(wish: str, has: str, agreed: str) -> None:
    one = machine({"description": wish})
    node = Node(uuid=one.node, driver="redfish", name="a", attributes={"description": has} if has else {})
    known = Status(applied={"/name": "a", "/driver": "redfish", "/description": agreed})
    plan = mapping.plan(known, one, node, [], "redfish", None, force=False)
    written, told = plan.fields.get("/description"), [*plan.elsewhere, *plan.both]
    if wish == has:
        assert (written, told) == (None, [])
    elif agreed == has:
        assert (written, told) == (wish, [])
    else:
        assert (written, told) == (None, ["description"])
        assert plan.applied.get("/description", "") == agreed
    forced = mapping.plan(known, one, node, [], "redfish", None, force=True)
    assert forced.fields.get("/description", has) == wish
    assert [*forced.elsewhere, *forced.both] == []


@given(st.sets(_TEXTS), st.sets(_TEXTS), st.sets(_TEXTS))
def test_ports_are_only_removed_if_the_object_had_them(wish: set[str], has: set[str], agreed: set[str]) -> None:
    one = machine({"macs": sorted(wish)})
    node = Node(uuid=one.node, driver="redfish", name="a")
    known = Status(applied={"/macs": " ".join(sorted(agreed - {""}))})
    plan = mapping.plan(known, one, node, sorted(has), "redfish", None, force=False)
    after = (has | set(plan.add_macs)) - set(plan.remove_macs)
    assert has - agreed <= after
    assert not set(plan.remove_macs) & wish
    assert wish - after <= agreed


def test_the_node_follows_from_the_object_alone() -> None:
    assert machine().node == machine({"macs": []}).node
    assert machine({"uuid": "6A8F9D3E-0000-4000-8000-000000000001"}).node == "6a8f9d3e-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    "spec",
    [
        {"bmc": {"driver": "unknown"}},
        {"bmc": {"driver": "redfish", "options": {"redfish_password": "x"}}},
        {"bmc": {"driver": "redfish", "options": {"redfish_system_id": "secret://file/x"}}},
        {"bmc": {"driver": "redfish", "options": {"a/b": "x"}}},
        {"macs": ["nonsense"]},
        {"uuid": "nonsense"},
    ],
)
def test_what_the_schema_cannot_refuse_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        mapping.check(machine(spec), {"redfish"})


def test_the_uuid_of_an_enrolled_machine_cannot_be_changed() -> None:
    changed = machine({"uuid": "6a8f9d3e-0000-4000-8000-000000000001"}, nodeUUID="6a8f9d3e-0000-4000-8000-000000000002")
    with pytest.raises(SpecError):
        mapping.check(changed, {"redfish"})


def test_a_login_never_shows_itself() -> None:
    login = mapping.login_of({"username": b"operator", "password": b"correct horse\n"}, "bmc", "7")
    assert (login.password, login.version) == ("correct horse", "bmc@7")
    assert "horse" not in repr(login)
    assert "horse" not in login.hidden("the BMC rejected correct horse")
    assert "ab" not in Login("ab", "c", "").hidden("ab is wrong")
    for wrong in ({}, {"username": b"x"}, {"username": b"x", "password": b"\xff"}):
        with pytest.raises(SpecError):
            mapping.login_of(wrong, "bmc", "7")


def test_a_status_that_somebody_else_wrote_is_ignored() -> None:
    assert machine(nodeUUID=7, applied=[]).known() == Status()


def test_conditions_keep_the_time_of_their_last_transition() -> None:
    first = mapping.conditions([], [mapping.fact("InStep", True, "InStep")], 1, "T1")
    same = mapping.conditions(first, [mapping.fact("InStep", True, "InStep")], 2, "T2")
    other = mapping.conditions(same, [mapping.fact("InStep", False, "ChangedElsewhere")], 2, "T3")
    assert [one[0]["lastTransitionTime"] for one in (first, same, other)] == ["T1", "T1", "T3"]


# The custom resource.


def _schema() -> dict[str, Any]:
    (version,) = yaml.safe_load((_CRDS / "machines.yaml").read_text())["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def _names(struct: Any) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_the_schema_and_the_structs_have_the_same_fields() -> None:
    schema = _schema()
    assert set(schema["spec"]["properties"]) == _names(objects.Spec)
    assert set(schema["spec"]["properties"]["bmc"]["properties"]) == _names(objects.Bmc)
    assert set(schema["status"]["properties"]["inspect"]["properties"]) == _names(objects.Order)
    node = Node(
        uuid="u", driver="d", power_state="power on", maintenance=True, last_error="x", inspection_finished_at=1.0,
        hardware=dict.fromkeys(("cpus", "memory", "storage", "disks", "nics", "dimms", "gpus"), 1)
        | dict.fromkeys(("vendor", "product", "serial", "firmware", "cpu", "arch"), "x"),
    )  # fmt: skip
    shown = mapping.of_node(node, "reason")
    assert set(schema["status"]["properties"]) == set(shown) | _names(Status) | {"observedGeneration"}
    assert set(schema["status"]["properties"]["hardware"]["properties"]) == set(shown["hardware"])


# HardwareData.

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["cpu", "memory", "interfaces", "disks", "count", "mac_address", "name", "system_vendor", "firmware", "boot",
         "frequency", "physical_mb", "size", "rotational", "parsed_lldp", "flags"]), inner, max_size=6),
    max_leaves=12,
)  # fmt: skip


@given(_ANYTHING, _ANYTHING)
def test_any_inventory_gives_a_specification(inventory: Any, plugin_data: Any) -> None:
    msgspec.json.encode(objects.specification(inventory, plugin_data))


def test_an_inventory_as_metal3_shows_it() -> None:
    inventory = {
        "hostname": "host",
        "cpu": {"architecture": "x86_64", "model_name": "Xeon", "frequency": "2400.0", "count": 4, "flags": ["b", "a"]},
        "memory": {"physical_mb": 4096},
        "system_vendor": {"manufacturer": "m", "product_name": "p", "serial_number": "s", "firmware": {"version": "2"}},
        "interfaces": [{
            "name": "eth0", "mac_address": "52:54:00:AA:00:01", "ipv4_address": "192.0.2.1",
            "ipv6_address": "2001:db8::1", "vendor": "0x8086", "product": "0x1572", "speed_mbps": 25000,
        }, {"name": "lo"}],
        "disks": [{"name": "/dev/nvme0n1", "size": 10, "rotational": False, "by_path": "/dev/disk/by-path/x"}],
        "boot": {"pxe_interface": "52:54:00:aa:00:01"},
    }  # fmt: skip
    lldp = {"switch_port_id": "Eth1", "switch_chassis_id": "aa", "switch_port_untagged_vlan_id": 7,
            "switch_port_vlans": [{"id": 7, "name": "x"}, {"id": 9999}]}  # fmt: skip
    found = objects.specification(inventory, {"parsed_lldp": {"eth0": lldp}})["hardware"]
    assert found["cpu"] == {
        "arch": "x86_64", "model": "Xeon", "clockMegahertz": 2400.0, "count": 4, "flags": ["a", "b"],
    }  # fmt: skip
    assert found["ramMebibytes"] == 4096
    assert [nic["ip"] for nic in found["nics"]] == ["192.0.2.1", "2001:db8::1"]
    nic = found["nics"][0]
    assert (nic["pxe"], nic["speedGbps"], nic["vlanId"], nic["vlans"]) == (True, 25, 7, [{"id": 7, "name": "x"}])
    assert nic["lldp"] == {"switchID": "aa", "portID": "Eth1"}
    (disk,) = found["storage"]
    assert (disk["name"], disk["type"], disk["sizeBytes"]) == ("/dev/disk/by-path/x", "NVME", 10)
