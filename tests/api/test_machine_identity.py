"""Which machine is it: MACs that several machines have, claims of other projects, replaced NICs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from ferroscope import transition
from ferroscope.api.auth.identity import local
from ferroscope.config.options import BootSettings, DiscoverySettings, InspectorSettings
from ferroscope.contracts.store import Query
from ferroscope.core.delivery import Fail
from ferroscope.core.lookup import MAX_MACS
from ferroscope.core.states import Event
from ferroscope.hardware import machine_identity
from ferroscope.worker.loop import Worker
from ferroscope_client.core.reasons import Reason
from tests.api import working
from tests.api.booted import ATTACKER, MACHINE, Site
from tests.api.callers import As, service_for
from tests.api.service import Service, callback_body, caller
from tests.support import databases, examples

USB = "be:3a:f2:b6:05:9f"  # the USB NIC of Supermicro's BMCs
UNKNOWN_USB = "52:54:00:5b:00:01"

Make = Callable[..., Service]


@pytest.fixture
def make(sqlite_url: str) -> Make:
    """Return a function that starts an api process; options are of ``[inspector]``."""

    def start(*, discovers: bool = False, **options: Any) -> Service:
        sections: dict[str, Any] = {"inspector": InspectorSettings(**options)}
        if discovers:
            sections["auto_discovery"] = DiscoverySettings(enabled=True, driver="fake-hardware")
        return Service(sqlite_url, sections=sections)

    return start


def entries(service: Service, node: str, step: str) -> list[dict[str, Any]]:
    found = service.bare_metal.get(f"/v1/nodes/{node}/timeline").json
    all_of_them = found["entries"] + [entry for one in found["inspections"] for entry in one["entries"]]
    return [entry for entry in all_of_them if entry["step"] == step]


def addresses(service: Service) -> set[str]:
    return {port["address"] for port in service.bare_metal.get("/v1/ports").json["ports"]}


def test_a_nic_that_all_machines_have_neither_identifies_nor_becomes_a_port(make: Make) -> None:
    service = make(add_ports="all")
    worker = working.worker(service)
    for number in range(3):
        node = service.enrol()
        mac = service.wait(node)
        answer = service.call_back(callback_body(mac, USB, serial=f"SN-{number}"))
        assert caller(answer) == node
        working.work(service, node, worker)
        assert service.node(node).provision_state == "manageable"
        stored = service.bare_metal.get(f"/v1/nodes/{node}/inventory").json["inventory"]
        assert [nic["mac_address"] for nic in stored["interfaces"]] == [mac, USB]
    assert USB not in addresses(service)
    refused = service.bare_metal.post("/v1/ports", {"node_uuid": node, "address": USB.upper()})
    assert refused.status_code == 400
    assert "ignored_macs" in refused.text
    (port, *_) = service.bare_metal.get("/v1/ports").json["ports"]
    change = {"op": "replace", "path": "/address", "value": USB}
    assert service.bare_metal.patch(f"/v1/ports/{port['uuid']}", change).status_code == 400
    assert service.bare_metal.get(f"/v1/lookup?addresses={USB}").status_code == 400
    assert "set secret" not in service.bare_metal.get(f"/v1/boot.ipxe?mac={USB}").text


def test_where_a_shared_mac_is_not_known_the_nic_that_booted_decides(make: Make) -> None:
    service = make()
    first, second = service.enrol(), service.enrol()
    service.wait(first)
    mac = service.wait(second)
    assert service.bare_metal.post("/v1/ports", {"node_uuid": first, "address": UNKNOWN_USB}).status_code == 201
    unclear = callback_body(mac, UNKNOWN_USB) | {"boot_interface": None}
    unknown = service.call_back(callback_body(examples.mac()))
    assert service.call_back(unclear).content == unknown.content
    for node in (first, second):
        (refused,) = entries(service, node, "callback-refused")
        assert refused["reason"] == "lookup-ambiguous"
        assert f"node {first} has {UNKNOWN_USB}" in refused["message"]
        assert f"node {second} has {mac}" in refused["message"]
        assert "ignored_macs" in str(service.node(node).last_error)
    assert caller(service.call_back(callback_body(mac, UNKNOWN_USB))) == second
    for node in (first, second):
        (told,) = entries(service, node, "mac-elsewhere")
        assert UNKNOWN_USB in told["message"]


def test_nodes_that_have_macs_of_the_machine_too_are_told_or_counted(make: Make) -> None:
    service = make()
    node = service.enrol()
    mac, theirs = service.wait(node), [examples.mac() for _ in range(10)]
    others = sorted(service.enrol() for _ in theirs)
    for other, their in zip(others, theirs, strict=True):
        assert service.bare_metal.post("/v1/ports", {"node_uuid": other, "address": their}).status_code == 201
    assert caller(service.call_back(callback_body(mac, *theirs))) == node
    (told,) = entries(service, node, "mac-elsewhere")
    assert all(
        f"{their}, which node {other}" in told["message"] for other, their in zip(others[:8], theirs, strict=False)
    )
    assert "2 more" in told["message"]
    assert len(entries(service, others[7], "mac-elsewhere")) == 1


@pytest.mark.usefixtures("nothing_is_kept")
def test_a_mac_that_several_machines_reported_is_proposed(make: Make) -> None:
    service = make()
    worker = working.worker(service)

    def problems(of: Service) -> list[dict[str, Any]]:
        return [one for one in of.bare_metal.get("/v1/status").json["problems"] if one["code"] == "macs-shared"]

    nodes = {}
    for number in range(2):
        node = service.enrol(name=f"machine-{number}")
        nodes[node] = service.wait(node)
        assert problems(service) == []
        service.call_back(callback_body(nodes[node], UNKNOWN_USB, USB, serial=f"SN-{number}"))
        working.work(service, node, worker)
    (problem,) = problems(service)
    assert f"ignored_macs = known,{UNKNOWN_USB};" in problem["advice"]
    assert all(f"machine-{number}" in problem["summary"] for number in range(2))
    query = quote(problem["search"])
    found = service.bare_metal.get(f"/v1/search?q={query}").json["nodes"]
    assert {one["uuid"] for one in found} == set(nodes)
    assert problems(make(ignored_macs=("known", UNKNOWN_USB))) == []
    # If the NIC was moved, the next inspection of its former machine ends it.
    node, mac = next(iter(nodes.items()))
    service.wait(node, mac=mac)
    service.call_back(callback_body(mac, serial="SN-0"))
    working.work(service, node, worker)
    assert problems(service) == []


def inspect(service: Service, worker: Worker, body: dict[str, Any], boots: str, *, bmc: str = "", **fields: Any) -> str:
    """Enroll a node with a port for one NIC of a machine, inspect it, and return its UUID.

    ``bmc``: the address of its BMC, as an earlier release enrolled nodes: whichever other node has it, too.
    """
    node = service.enrol(**fields)
    if bmc:
        service.alter(node, driver_info={"ipmi_address": bmc})
        service.store.write(lambda tx: tx.addresses.set_bmc(node, [bmc]))
    service.wait(node, mac=boots)
    sent = body | {"boot_interface": "01-" + boots.replace(":", "-")}
    assert caller(service.call_back(sent)) == node
    working.work(service, node, worker)
    assert service.node(node).provision_state == "manageable"
    return node


def machine(*macs: str, serial: str = "", system_uuid: str = "") -> dict[str, Any]:
    """Return what a machine sends, its system UUID as the collector extra-hardware does."""
    body = callback_body(*macs, serial=serial)
    return body | ({"data": [["system", "product", "uuid", system_uuid]]} if system_uuid else {})


def problems_of(service: Service) -> list[dict[str, Any]]:
    codes = ("macs-shared", "nodes-are-one-machine")
    return [one for one in service.bare_metal.get("/v1/status").json["problems"] if one["code"] in codes]


BMC = {"bmc": "192.0.2.34"}
SYSTEM_UUID = "7d0c9c3e-5b1f-4a58-9d0e-3c1f6a1b2c3d"
SWAPPED_UUID = "3e9c0c7d-1f5b-584a-9d0e-3c1f6a1b2c3d"


@pytest.mark.usefixtures("nothing_is_kept")
@pytest.mark.parametrize(
    ("identity", "fields", "agreeing"),
    [
        ({"serial": "SN0170"}, {}, "serial number SN0170 and MAC addresses"),
        ({"system_uuid": SYSTEM_UUID}, {}, f"system UUID {min(SYSTEM_UUID, SWAPPED_UUID)} and MAC addresses"),
        ({"serial": "To be filled by O.E.M."}, BMC, "BMC and MAC addresses"),
        ({"serial": "SN0170"}, BMC, "serial number SN0170, BMC and MAC addresses"),
    ],
)
def test_two_nodes_of_one_machine_are_a_problem_that_names_both(
    make: Make, identity: dict[str, str], fields: dict[str, Any], agreeing: str
) -> None:
    service = make()
    worker, (first, second) = working.worker(service), (examples.mac(), examples.mac())
    body = machine(first, second, **identity)
    e1 = inspect(service, worker, body, first, name="e1", **fields)
    assert problems_of(service) == []
    if "system_uuid" in identity:
        body = machine(first, second, system_uuid=SWAPPED_UUID)
    e3 = inspect(service, worker, body, second, name="e3", **fields)
    (problem,) = problems_of(service)
    names = " and ".join(name for _, name in sorted([(e1, "e1"), (e3, "e3")]))
    assert (problem["code"], problem["verdict"]) == ("nodes-are-one-machine", "wrong")
    assert problem["summary"] == f"nodes {names} are one machine: same {agreeing}"
    assert "ignored_macs" not in problem["advice"]
    found = service.bare_metal.get(f"/v1/search?q={quote(problem['search'])}").json["nodes"]
    assert {one["uuid"] for one in found} == {e1, e3}
    # Deleting one of them ends it.
    assert service.bare_metal.delete(f"/v1/nodes/{e3}").status_code == 204
    assert problems_of(service) == []


@pytest.mark.usefixtures("nothing_is_kept")
def test_nodes_with_the_serial_number_and_uuid_of_one_machine_are_found_without_a_shared_mac(make: Make) -> None:
    service = make()
    worker = working.worker(service)
    for name in ("e1", "e3"):
        mac = examples.mac()
        inspect(service, worker, machine(mac, serial="SN0170", system_uuid=SYSTEM_UUID), mac, name=name)
    (problem,) = problems_of(service)
    assert problem["summary"].endswith(f"same serial number SN0170 and system UUID {min(SYSTEM_UUID, SWAPPED_UUID)}")


@pytest.mark.usefixtures("nothing_is_kept")
def test_servers_of_a_chassis_that_report_its_serial_number_are_different_machines(make: Make) -> None:
    service = make()
    worker = working.worker(service)
    for slot in range(3):
        mac, info = examples.mac(), {"redfish_address": "192.0.2.34", "redfish_system_id": f"/Systems/{slot}"}
        body = machine(mac, UNKNOWN_USB, serial="CHASSIS-1", system_uuid=examples.uuid())
        inspect(service, worker, body, mac, driver_info=info)
    (problem,) = problems_of(service)
    assert problem["code"] == "macs-shared"
    assert f"ignored_macs = known,{UNKNOWN_USB};" in problem["advice"]


@pytest.mark.usefixtures("nothing_is_kept")
def test_servers_with_the_serial_number_of_their_chassis_and_no_uuid_are_not_called_one_machine(make: Make) -> None:
    service = make()
    worker = working.worker(service)
    for slot in range(2):
        mac, info = examples.mac(), {"redfish_address": "192.0.2.34", "redfish_system_id": f"/Systems/{slot}"}
        inspect(service, worker, machine(mac, UNKNOWN_USB, serial="CHASSIS-1"), mac, driver_info=info)
    (problem,) = problems_of(service)
    assert problem["code"] == "macs-shared"


@pytest.mark.usefixtures("nothing_is_kept")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"serial": ""}, {"serial": ""}),
        ({"serial": "0123456789"}, {"serial": "0123456789"}),
        ({"system_uuid": "03000200-0400-0500-0006-000700080009"}, {}),
        ({"serial": "SN-OF-MAINBOARD", "system_uuid": SYSTEM_UUID}, {"serial": "SN-1", "system_uuid": SYSTEM_UUID}),
    ],
    ids=["nothing", "counted-serial", "placeholder-uuid", "contradiction"],
)
def test_nobody_is_told_to_ignore_macs_of_nodes_that_may_be_one_machine(
    make: Make, first: dict[str, str], second: dict[str, str]
) -> None:
    service = make()
    worker = working.worker(service)
    for name, identity in (("e1", first), ("e3", second)):
        mac = examples.mac()
        inspect(service, worker, machine(mac, UNKNOWN_USB, **identity), mac, name=name)
    (problem,) = problems_of(service)
    assert (problem["code"], problem["verdict"]) == ("macs-shared", "note")
    assert "e1" in problem["summary"]
    assert "e3" in problem["summary"]
    assert "ignored_macs" not in problem["advice"]


def test_a_machine_that_matches_two_nodes_of_its_own_is_not_to_be_ignored(make: Make) -> None:
    service = make()
    worker, (first, second) = working.worker(service), (examples.mac(), examples.mac())
    body = machine(first, second, serial="SN0170")
    nodes = [inspect(service, worker, body, first), inspect(service, worker, body, second)]
    for node, mac in zip(nodes, (first, second), strict=True):
        service.wait(node, mac=mac)
    service.call_back(body | {"boot_interface": None})
    for node in nodes:
        (refused,) = entries(service, node, "callback-refused")
        assert refused["reason"] == "lookup-ambiguous"
        assert "correct the BMC address" in refused["message"]
        assert "ignored_macs" not in refused["message"]


def test_each_unknown_machine_becomes_a_node_though_all_share_a_mac(make: Make) -> None:
    """Machines share a docking station or an adapter.

    Reports: https://github.com/FOGProject/fogproject/issues/518, https://github.com/FOGProject/fogproject/issues/336.
    """
    service = make(discovers=True)
    worker = working.worker(service)
    known: dict[str, str] = {}
    for number in range(3):
        mac, bmc = examples.mac(), f"192.0.2.{number + 1}"
        body = callback_body(mac, UNKNOWN_USB, serial=f"SN-{number}", bmc_address=bmc)
        node = caller(service.call_back(body))
        assert node not in known
        assert caller(service.call_back(body)) == node
        if number:  # the first one's data has not been processed when the second one calls
            working.work(service, node, worker)
        known[node] = mac
    assert len(service.store.read(lambda tx: tx.nodes.list(Query()))) == 3
    first, *others = known
    macs = {node: service.store.read(lambda tx, node=node: tx.discoveries.macs(node)) for node in known}  # type: ignore[misc]
    assert macs == {first: sorted([known[first], UNKNOWN_USB])} | {node: [known[node]] for node in others}
    for node in known:
        assert UNKNOWN_USB in entries(service, node, "mac-elsewhere")[0]["message"]


def test_an_unknown_machine_that_shares_a_mac_with_an_enrolled_one_is_discovered(make: Make) -> None:
    service = make(discovers=True)
    worker = working.worker(service)
    node = service.enrol()
    mac = service.wait(node)
    service.bare_metal.post("/v1/ports", {"node_uuid": node, "address": UNKNOWN_USB})
    assert caller(service.call_back(callback_body(mac, UNKNOWN_USB, serial="SN-1"))) == node
    working.work(service, node, worker)
    other = callback_body(examples.mac(), UNKNOWN_USB, serial="SN-2")
    assert caller(service.call_back(other)) != node
    # The known machine itself is none that is unknown, from whichever NIC it boots.
    assert service.call_back(callback_body(examples.mac(), mac, serial="SN-1")).status_code == 404


@pytest.mark.parametrize(("way", "bmc"), [("virtual media", "10.99.0.7"), ("boot script", None)])
def test_a_machine_with_new_nics_is_known_by_its_secret(tmp_path: Path, way: str, bmc: str | None) -> None:
    site = Site(tmp_path, way)
    site.power_on()
    body = callback_body(examples.mac(), **({"bmc_address": bmc} if bmc else {}))
    stranger = site.call(None, source=ATTACKER, body=callback_body(examples.mac()))
    for wrong in (None, "x" * 43, "sha256:" + "0" * 64):
        refused = site.call(wrong, source=ATTACKER, body=body)
        assert (refused.status_code, refused.content) == (404, stranger.content)
    secret = site.secret
    answers = [site.call(secret, source=MACHINE, body=body) for _ in range(2)]
    assert {caller(answer) for answer in answers} == {site.node}
    site.service.finish(site.node)
    assert caller(site.call(secret, source=MACHINE, body=body)) == site.node  # a repetition that arrives late
    kept = str(site.inspection.secret)
    assert site.call(kept, source=ATTACKER, body=body).status_code == 404


@pytest.mark.parametrize("serial", ["SN-1", "SN-2"])
def test_data_of_a_machine_whose_nics_were_replaced_is_not_held(tmp_path: Path, serial: str) -> None:
    site = Site(tmp_path, "boot script")
    worker = working.worker(site.service)
    site.power_on()
    assert caller(site.call(site.secret, source=MACHINE, body=callback_body(site.mac, serial="SN-1"))) == site.node
    working.work(site.service, site.node, worker)
    site.start()
    site.power_on()
    body = callback_body(examples.mac(), serial=serial)
    assert caller(site.call(site.secret, source=MACHINE, body=body)) == site.node
    assert site.service.node(site.node).inbox is (serial != "SN-1")


IDENTITIES = {
    "root": local("root", "token", ["admin"]),
    "a": local("a", "token", ["admin"], project="p_a"),
    "b": local("b", "token", ["admin"], project="p_b"),
}


class Projects:
    """A machine with two NICs of project b, and a node of project a that has the second one."""

    def __init__(self, directory: Path) -> None:
        boot = BootSettings(machine_script_url="http://192.0.2.1:6385/v1/boot.ipxe")
        inspector = InspectorSettings(callback_endpoint_override="http://192.0.2.1:6385")
        sections = {"boot": boot, "inspector": inspector}
        self.service = service_for(databases.sqlite(directory), IDENTITIES, sections=sections)
        self.mac, self.second = examples.mac(), examples.mac()
        self.nodes = {name: self.enroll(name) for name in "ab"}
        self.port("b", self.mac)
        self.port("a", self.second)
        for name in "ab":
            answer = self(name)("PUT", f"/v1/nodes/{self.nodes[name]}/states/provision", {"target": "inspect"})
            assert answer.status_code == 202, answer.text
            self.service.consume()
            self.service.step(self.nodes[name], Event.WAIT)

    def __call__(self, name: str) -> As:
        return As(self.service.bare_metal, name)

    def enroll(self, name: str) -> str:
        made = self("root")("POST", "/v1/nodes", {"driver": "sim", "owner": f"p_{name}"})
        assert made.status_code == 201, made.text
        return str(made.json["uuid"])

    def port(self, name: str, mac: str) -> None:
        answer = self(name)("POST", "/v1/ports", {"node_uuid": self.nodes[name], "address": mac})
        assert answer.status_code == 201, answer.text

    def secret(self, mac: str) -> str:
        script = self.service.bare_metal.get(f"/v1/boot.ipxe?mac={mac}")
        return (re.findall(r"^set secret (\S+)$", script.text, re.MULTILINE) or [""])[0]

    def told(self, name: str, step: str) -> list[str]:
        timeline = self(name)("GET", f"/v1/nodes/{self.nodes[name]}/timeline").json
        found = [entry for one in timeline["inspections"] for entry in one["entries"]] + timeline["entries"]
        return [entry["message"] for entry in found if entry["step"] == step]


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path)


def test_a_lookup_without_a_uuid_passes_over_the_claim_of_a_project_that_inspects_nothing(projects: Projects) -> None:
    lookup = f"/v1/lookup?addresses={projects.mac},{projects.second}"
    assert projects.service.bare_metal.get(lookup).status_code == 404
    projects.service.fail(projects.nodes["a"])
    assert projects.service.bare_metal.get(lookup).json["node"]["uuid"] == projects.nodes["b"]


def test_a_project_that_claims_the_nic_of_a_known_machine_does_not_get_its_data(projects: Projects) -> None:
    worker, body = working.worker(projects.service), callback_body(projects.mac, projects.second, serial="SN-B")
    query = f"?secret={projects.secret(projects.mac)}"
    assert caller(projects.service.call_back(body, query=query)) == projects.nodes["b"]
    working.work(projects.service, projects.nodes["b"], worker)
    # Now it boots from the NIC that project a claims.
    stolen = callback_body(projects.second, projects.mac, serial="SN-B")
    refused = projects.service.call_back(stolen, query=f"?secret={projects.secret(projects.second)}")
    assert refused.status_code == 404
    assert refused.content == projects.service.call_back(callback_body(examples.mac())).content
    for name in "ab":
        assert any(projects.nodes["b"] in message for message in projects.told(name, "callback-refused"))
    assert projects("a")("GET", f"/v1/nodes/{projects.nodes['a']}/inventory").status_code == 404


def test_a_machine_with_many_virtual_functions_works_everywhere(make: Make) -> None:
    service = make(add_ports="all")
    worker = working.worker(service)
    node = service.enrol()
    mac = service.wait(node)
    macs = [mac, *(f"f2:00:00:00:{number >> 8:02x}:{number & 255:02x}" for number in range(MAX_MACS - 1))]
    assert caller(service.call_back(callback_body(*macs, serial="SN-1"))) == node
    working.work(service, node, worker)
    assert addresses(service) == set(macs)
    assert service.bare_metal.get(f"/v1/nodes/{node}/inventory").status_code == 200
    service.wait(node, mac=mac)
    lookup = f"/v1/lookup?addresses={','.join(macs)}"
    assert service.bare_metal.get(lookup).json["node"]["uuid"] == node
    # Virtual functions have other addresses after each boot: the NIC tells that it is the same machine.
    others = [mac, *(f"f2:00:01:00:{number >> 8:02x}:{number & 255:02x}" for number in range(MAX_MACS - 1))]
    assert caller(service.call_back(callback_body(*others, serial="SN-1"))) == node
    assert not service.node(node).inbox
    found = {"driver": "fake-hardware", "driver_info": {}, "macs": others[1:]}
    assert service.bare_metal.post("/v1/inbox", found).status_code == 201


def test_the_machine_that_has_replaced_another_behind_its_bmc_is_approved_once_it_was_refused(make: Make) -> None:
    service = make()
    node = service.enrol()

    def becomes(last_error: str | None) -> Callable[[Any], Any]:
        def work(tx: Any) -> Any:
            changed = tx.nodes.get(node)
            machine_identity.remember_behind_bmc(changed, {"serial": "SN-1"})
            return tx.nodes.update(msgspec.structs.replace(changed, last_error=last_error))

        return work

    service.store.write(becomes(None))
    approve = f"/v1/nodes/{node}/approve"
    assert service.bare_metal.post(approve).status_code == 409
    failure = Fail(Reason.BMC_OTHER_MACHINE, "another machine is at https://192.0.2.10 than before")
    service.store.write(becomes(transition.explain(failure)))
    assert service.bare_metal.post(approve).status_code == 204
    assert machine_identity.behind_bmc(service.node(node)) is None
    assert entries(service, node, "approved")
    assert service.bare_metal.post(approve).status_code == 409


@pytest.mark.usefixtures("nothing_is_kept")
def test_the_real_nics_of_a_reenrolled_machine_are_not_to_be_ignored(make: Make) -> None:
    """Its mainboard was replaced between the two, so that even the serial number is another one."""
    service = make()
    worker, macs = working.worker(service), [examples.mac() for _ in range(3)]
    inspect(service, worker, machine(*macs, serial="SN-0"), macs[0], name="e1")
    inspect(service, worker, machine(*macs, serial="SN-1"), macs[1], name="e3")
    (problem,) = problems_of(service)
    assert "ignored_macs" not in problem["advice"]


def test_machines_without_serial_numbers_are_told_apart_by_their_bmcs(make: Make) -> None:
    service = make(discovers=True)
    found = {
        caller(
            service.call_back(callback_body(examples.mac(), UNKNOWN_USB, serial="", bmc_address=f"192.0.2.{number}"))
        )
        for number in (1, 2)
    }
    assert len(found) == 2
