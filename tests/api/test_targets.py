"""GET /v1/prometheus/targets: which machines, with which address, and who sees them."""

from __future__ import annotations

import pytest

from tests.api.browsing import IDENTITIES
from tests.api.callers import As, service_for
from tests.api.service import Client, Service
from tests.support import examples

INTERFACES = [
    {"name": "eth0", "mac_address": "52:54:00:00:00:01", "ipv4_address": "198.51.100.1"},
    {"name": "eth1", "mac_address": "52:54:00:00:00:02", "ipv4_address": "198.51.100.2"},
]


def targets(client: Client, query: str = "") -> list[str]:
    answer = client.get(f"/v1/prometheus/targets{query}", version=None)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
    return [target for group in answer.json for target in group["targets"]]


@pytest.fixture
def fleet(service: Service) -> Service:
    info = {"redfish_address": "https://192.0.2.1", "redfish_password": "Canary-3f"}
    booted = {"boot": {"pxe_interface": "52:54:00:00:00:02"}}
    service.learn(
        service.enrol(name="a1", labels={"rack": "r1", "spare": ""}, driver_info=info),
        {"system_vendor": {"manufacturer": "Dell"}, "interfaces": INTERFACES, **booted},
    )
    service.learn(service.enrol(name="b1", labels={"rack": "r2"}), {"interfaces": INTERFACES})
    service.enrol(name="c1")
    service.alter(service.enrol(name="waits"), inbox=True)
    return service


def test_the_targets_are_the_machines_that_were_asked_for(fleet: Service) -> None:
    for query, expected in [
        ("", {"a1", "b1", "c1"}),
        ("?port=9100", {"a1:9100", "b1:9100", "c1:9100"}),
        ("?target=ip", {"198.51.100.2", "198.51.100.1"}),
        ("?target=bmc", {"192.0.2.1"}),
        ("?labels=rack%20in%20(r1,r3),spare", {"a1"}),
        ("?q=vendor%3D%3Ddell%20or%20name%3D%3Db1", {"a1", "b1"}),
        ("?q=label.rack%3D%3Dr2&labels=spare", set()),
    ]:
        assert set(targets(fleet.bare_metal, query)) == expected, query


def test_a_machine_has_its_fields_as_labels_and_no_secret(fleet: Service) -> None:
    answer = fleet.bare_metal.get("/v1/prometheus/targets?q=name%3D%3Da1", version=None)
    (found,) = answer.json
    expected = {"name": "a1", "uuid": fleet.node("a1").uuid, "label_rack": "r1", "label_spare": "", "vendor": "Dell",
                "bmc": "192.0.2.1", "ip": "198.51.100.2", "provision_state": "enroll"}  # fmt: skip
    assert {f"__meta_ferroscope_{name}": value for name, value in expected.items()}.items() <= found["labels"].items()
    assert "Canary" not in answer.text


def test_a_wrong_parameter_is_refused(service: Service) -> None:
    for wrong in ["target=uuid", "port=65536", "q=name%3D%3D", "labels=%3Dx"]:
        answer = service.bare_metal.get(f"/v1/prometheus/targets?{wrong}")
        assert answer.status_code == 400, wrong
        assert wrong.partition("=")[0] in answer.text or "query" in answer.text, wrong


def test_all_machines_of_a_large_fleet_are_targets(service: Service) -> None:
    names = {f"node-{number}" for number in range(1201)}
    made = [examples.node(name=name) for name in sorted(names)]
    service.store.write(lambda tx: [tx.nodes.add(node) for node in made])
    found = targets(service.bare_metal)
    assert (set(found), len(found)) == (names, 1201)


def test_a_project_has_its_own_machines_as_targets(sqlite_url: str) -> None:
    service = service_for(sqlite_url, IDENTITIES)
    made = [examples.node(name=f"of-{owner}", owner=owner) for owner in ("a", "b", None)]
    service.store.write(lambda tx: [tx.nodes.add(node) for node in made])
    every = ["of-None", "of-a", "of-b"]
    for name, expected in (("reader", every), ("a-reader", ["of-a"])):
        found = As(service.bare_metal, name)("GET", "/v1/prometheus/targets").json
        assert sorted(target for group in found for target in group["targets"]) == expected
    assert As(service.bare_metal, "")("GET", "/v1/prometheus/targets").status_code == 401
