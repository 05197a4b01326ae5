"""Two nodes at one BMC: refused unless they say otherwise; and addresses that may be those of other machines."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.api.auth.identity import Identity
from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.config.options import DiscoverySettings
from ferroscope.core.states import Event
from tests.api.callers import service_for
from tests.api.service import Service, callback_body, fault
from tests.support import examples

DRIVERS = {"redfish": RedfishBmc(), "ipmi": IpmiBmc(), "fake-hardware": FakeBmc()}
PLACE = "/driver_info/redfish_address"


@pytest.fixture
def service(sqlite_url: str) -> Service:
    sections = {"auto_discovery": DiscoverySettings(enabled=True, driver="fake-hardware", max_per_minute=1000)}
    return Service(sqlite_url, drivers=DRIVERS, sections=sections)


def create(service: Service, name: str, driver: str = "redfish", **info: Any) -> Any:
    return service.bare_metal.post("/v1/nodes", {"name": name, "driver": driver, "driver_info": info})


def step(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


@pytest.mark.parametrize(
    ("driver", "info"),
    [
        ("redfish", {"redfish_address": "[::ffff:192.0.2.2]", "redfish_system_id": "1"}),
        ("ipmi", {"ipmi_address": "192.0.2.2", "ipmi_port": 623}),
    ],
)
def test_a_second_node_at_the_place_of_another_is_refused_and_says_of_which(
    service: Service, driver: str, info: dict[str, Any]
) -> None:
    create(service, "first", redfish_address="192.0.2.2")
    answer = create(service, "second", driver, **info)
    assert answer.status_code == 409
    assert "first" in fault(answer)
    assert "192.0.2.2" in fault(answer)
    assert "allow_shared_bmc" in fault(answer)
    assert create(service, "second", driver, **info, allow_shared_bmc="true").status_code == 201


def test_several_systems_and_several_ports_are_several_places(service: Service) -> None:
    emulator = {"redfish_address": "http://192.0.2.2:8000"}
    for number in range(3):
        system = {"redfish_system_id": f"/redfish/v1/Systems/{number}"}
        assert create(service, f"vm{number}", **emulator, **system).status_code == 201
        ports = {"ipmi_address": "192.0.2.3", "ipmi_port": str(6230 + number)}
        assert create(service, f"vbmc{number}", "ipmi", **ports).status_code == 201
        bridged = {"ipmi_address": "192.0.2.4", "ipmi_bridging": "single", "ipmi_target_channel": "7"}
        assert create(service, f"blade{number}", "ipmi", **bridged, ipmi_target_address="0x82").status_code == 201
        assert create(service, f"without{number}").status_code == 201


def test_a_change_that_leads_to_the_place_of_another_is_refused_and_no_other_change_is(service: Service) -> None:
    create(service, "first", redfish_address="192.0.2.2")
    create(service, "second", redfish_address="192.0.2.3")
    refused = service.bare_metal.patch("/v1/nodes/second", step(PLACE, "https://192.0.2.2:443"))
    assert refused.status_code == 409
    assert "first" in fault(refused)
    assert service.node("second").driver_info["redfish_address"] == "192.0.2.3"
    on_purpose = step("/driver_info/allow_shared_bmc", True)
    assert service.bare_metal.patch("/v1/nodes/second", on_purpose, step(PLACE, "192.0.2.2")).status_code == 200
    for change in (
        step("/description", "a twin"),
        step(PLACE, "https://192.0.2.2/"),
        step("/driver_info/redfish_username", "root"),
        step("/driver_info/redfish_system_id", "1"),  # those that share it may tell themselves apart
    ):
        answer = service.bare_metal.patch("/v1/nodes/second", change)
        assert answer.status_code == 200, answer.text
    assert service.bare_metal.patch("/v1/nodes/first", step("/driver_info/redfish_system_id", "2")).status_code == 200


def test_the_permission_is_withdrawn_only_where_the_bmc_is_not_shared(service: Service) -> None:
    create(service, "first", redfish_address="192.0.2.2")
    create(service, "second", redfish_address="192.0.2.2", allow_shared_bmc=True)
    remove = {"op": "remove", "path": "/driver_info/allow_shared_bmc"}
    for change in (remove, step("/driver_info/allow_shared_bmc", False)):
        refused = service.bare_metal.patch("/v1/nodes/second", change)
        assert refused.status_code == 409
        assert "first" in fault(refused)
    assert service.bare_metal.patch("/v1/nodes/second", remove, step(PLACE, "192.0.2.3")).status_code == 200


def test_it_is_enough_that_either_node_says_that_it_shares_its_bmc(service: Service) -> None:
    create(service, "first", redfish_address="192.0.2.2", allow_shared_bmc=True)
    assert create(service, "second", "ipmi", ipmi_address="192.0.2.2").status_code == 201
    assert "second" in fault(create(service, "third", redfish_address="192.0.2.2"))
    found = {"driver": "redfish", "driver_info": {"redfish_address": "https://192.0.2.4", "redfish_system_id": "1"}}
    waiting = service.bare_metal.post("/v1/inbox", found).json["uuid"]
    assert create(service, "fourth", redfish_address="192.0.2.4", allow_shared_bmc=True).status_code == 201
    assert service.bare_metal.post("/v1/inbox", found).status_code == 409
    assert service.bare_metal.post(f"/v1/nodes/{waiting}/approve").status_code == 204


def test_what_workers_have_resolved_counts(service: Service) -> None:
    create(service, "named", redfish_address="https://bmc7.example")
    assert create(service, "again", redfish_address="BMC7.example.").status_code == 409
    named = service.node("named").uuid
    service.store.write(lambda tx: tx.addresses.set_bmc(named, ["192.0.2.7", "bmc7.example"]))
    refused = create(service, "literal", "ipmi", ipmi_address="192.0.2.7")
    assert refused.status_code == 409
    assert "named" in fault(refused)


def test_what_only_a_machine_says_of_its_bmc_keeps_nobody_out_until_it_is_approved(service: Service) -> None:
    found = service.call_back(callback_body(examples.mac(), bmc_address="192.0.2.2"), version="1.84")
    assert found.status_code == 202
    assert create(service, "first", redfish_address="192.0.2.2").status_code == 201
    later = service.call_back(callback_body(examples.mac(), bmc_address="192.0.2.2"), version="1.84")
    waiting = service.bare_metal.get("/v1/nodes?inbox=true").json["nodes"]
    assert len(waiting) == (2 if later.status_code == 202 else 1)
    for one in waiting:
        service.consume()
        refused = service.bare_metal.post(f"/v1/nodes/{one['uuid']}/approve")
        assert refused.status_code == 409, refused.text
        assert "first" in fault(refused)


def test_what_a_scan_has_found_is_in_the_inbox_and_so_says_the_refusal(service: Service) -> None:
    found = {"driver": "redfish", "driver_info": {"redfish_address": "https://192.0.2.2"}}
    ident = service.bare_metal.post("/v1/inbox", found).json["uuid"]
    refused = create(service, "imported", "ipmi", ipmi_address="192.0.2.2")
    assert refused.status_code == 409
    assert f"is in the inbox as {ident}" in fault(refused)
    again = {"driver": "ipmi", "driver_info": {"ipmi_address": "192.0.2.2"}}
    assert service.bare_metal.post("/v1/inbox", again).status_code == 409


def test_a_node_that_the_caller_may_not_see_is_not_named(sqlite_url: str) -> None:
    project = Identity(user="m", method="keystone", roles=frozenset({"admin", "member", "reader"}), project_id="p1")
    system = Identity(user="s", method="keystone", roles=frozenset({"admin", "member", "reader"}), system_scope=True)
    served = service_for(sqlite_url, {"project": project, "system": system}, drivers=DRIVERS)
    body = {"driver": "redfish", "driver_info": {"redfish_address": "192.0.2.2"}}
    as_system = {"headers": {"X-Auth-Token": "system"}}
    first = served.bare_metal.post("/v1/nodes", body | {"name": "hidden"}, **as_system)
    refused = served.bare_metal.post("/v1/nodes", body, headers={"X-Auth-Token": "project"})
    assert refused.status_code == 409
    assert "hidden" not in refused.text
    assert first.json["uuid"] not in refused.text
    assert "hidden" in served.bare_metal.post("/v1/nodes", body, **as_system).text


def test_each_entry_of_the_api_refuses_an_address_that_may_be_another_machine(service: Service) -> None:
    host, meant = "10.40.0.041", "10.40.0.33"
    create(service, "one", redfish_address="192.0.2.2")
    ident = service.node("one").uuid
    api, url = service.bare_metal, f"https://{host}/x.iso"
    infos = [{"redfish_address": host}, {"redfish_address": url[:-6]}, {"ipmi_address": host}, {"deploy_iso": url}]
    answers = [create(service, "two", **info) for info in (*infos, {"ilo_address": host}, {"a": {"deep": [url]}})]
    answers += [
        api.patch("/v1/nodes/one", step(f"/driver_info/{key}", value)) for info in infos for key, value in info.items()
    ]
    answers.append(api.patch("/v1/nodes/one", step("/instance_info/boot_iso", url)))
    answers += [api.post("/v1/inbox", {"driver": "redfish", "driver_info": info}) for info in infos]
    answers.append(api.post(f"/v1/nodes/{ident}/vmedia", {"device_type": "cdrom", "image_url": url}))
    beat = {"callback_url": f"http://{host}:9999", "agent_token": "x"}
    answers.append(api.post(f"/v1/heartbeat/{ident}", beat))
    for answer in answers:
        assert (answer.status_code, meant in answer.text) == (400, True), answer.text
    assert service.pending("one") == []


def test_no_url_is_handed_on_in_which_a_bmc_may_find_another_host(service: Service) -> None:
    url = "http://good\\@10.40.34/x.iso"
    create(service, "one", redfish_address="192.0.2.2")
    attached = service.bare_metal.post("/v1/nodes/one/vmedia", {"device_type": "cdrom", "image_url": url})
    assert (attached.status_code, "image_url" in attached.text) == (400, True), attached.text
    stored = service.bare_metal.patch("/v1/nodes/one", step("/driver_info/deploy_iso", url))
    assert (stored.status_code, "deploy_iso" in stored.text) == (400, True), stored.text
    assert service.pending("one") == []


def test_an_address_of_before_is_refused_when_it_is_used_and_can_be_corrected(service: Service) -> None:
    create(service, "one", redfish_address="192.0.2.2")
    service.alter("one", driver_info={"redfish_address": "https://10.40.0.041"})
    checked = service.bare_metal.get("/v1/nodes/one/validate").json["management"]
    assert checked["result"] is False
    assert "10.40.0.33" in checked["reason"]
    assert service.bare_metal.patch("/v1/nodes/one", step("/description", "old")).status_code == 200
    assert service.bare_metal.patch("/v1/nodes/one", step(PLACE, "https://10.40.0.41")).status_code == 200


def test_what_is_incomplete_can_be_created_as_with_ironic(service: Service) -> None:
    assert create(service, "one", redfish_address="https://192.0.2.2/redfish/v1").status_code == 201
    assert create(service, "two", redfish_password="secret").status_code == 201
    assert service.bare_metal.get("/v1/nodes/two/validate").json["management"]["result"] is False
    assert Event.VERIFY not in {request.event for request in service.pending("two")}
