"""Fields of nodes, and lists of them, answer as the Bare Metal service does.

Each request here was also sent to a real Ironic 39. Each test names the section of its API reference, or of the history
of its microversions. Texts are those of Ironic; where ours go on after them, only the beginning is compared.
Differences that are deliberate are in docs/reference/deviations.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.published import provisioned, replace
from tests.api.service import Service, fault

# Fields that depend on each other. Source: "Update Node", and the release notes of protected (1.48) and retired (1.61).


@pytest.mark.parametrize("change", [replace("/retired", False), {"op": "remove", "path": "/retired"}])
def test_a_node_that_is_no_longer_retired_has_no_reason(service: Service, change: dict[str, Any]) -> None:
    path = provisioned(service, "manageable")
    node = service.bare_metal.patch(path, replace("/retired", True), replace("/retired_reason", "old")).json
    assert (node["retired"], node["retired_reason"]) == (True, "old")
    node = service.bare_metal.patch(path, change).json
    assert (node["retired"], node["retired_reason"]) == (False, None)


def test_available_nodes_are_not_retired(service: Service) -> None:
    path = provisioned(service, "available")
    answer = service.bare_metal.patch(path, replace("/retired", True))
    assert answer.status_code == 409
    assert "can not have 'retired' set in provision state 'available'" in fault(answer)
    assert service.bare_metal.patch(path, replace("/retired", False)).status_code == 200


def test_retired_nodes_are_not_provided(service: Service) -> None:
    path = provisioned(service, "manageable")
    service.bare_metal.patch(path, replace("/retired", True))
    answer = service.bare_metal.put(f"{path}/states/provision", {"target": "provide"})
    assert answer.status_code == 400
    assert "The providing operation can't be performed" in fault(answer)
    service.bare_metal.patch(path, replace("/retired", False))
    assert service.bare_metal.put(f"{path}/states/provision", {"target": "provide"}).status_code == 202


def test_only_active_and_rescued_nodes_are_protected(service: Service) -> None:
    path = provisioned(service, "manageable")
    answer = service.bare_metal.patch(path, replace("/protected", True))
    assert answer.status_code == 409
    assert "can only be made protected in provision states 'active' or 'rescue'" in fault(answer)


def test_a_node_that_is_no_longer_protected_has_no_reason(service: Service) -> None:
    ident = service.enrol()
    service.alter(ident, attributes={"protected": True, "protected_reason": "theirs"})
    path = f"/v1/nodes/{ident}"
    assert service.bare_metal.patch(path, replace("/protected_reason", "ours")).json["protected_reason"] == "ours"
    node = service.bare_metal.patch(path, replace("/protected", False)).json
    assert (node["protected"], node["protected_reason"]) == (False, None)


@pytest.mark.parametrize("flag", ["protected", "retired"])
def test_a_reason_needs_its_flag(service: Service, flag: str) -> None:
    answer = service.bare_metal.patch(provisioned(service, "manageable"), replace(f"/{flag}_reason", "x"))
    assert (answer.status_code, fault(answer)) == (400, f"The {flag}_reason field can only be set when {flag} is True")


def test_new_nodes_are_not_protected(service: Service) -> None:
    answer = service.bare_metal.post("/v1/nodes", {"driver": "sim", "protected": True})
    assert answer.status_code == 400
    assert "'protected' was unexpected" in fault(answer)


def test_maintenance_ends_with_its_reason(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol()}"
    service.bare_metal.put(f"{path}/maintenance", {"reason": "fan"})
    node = service.bare_metal.patch(path, replace("/maintenance", False)).json
    assert (node["maintenance"], node["maintenance_reason"]) == (False, None)
    assert service.bare_metal.patch(path, replace("/maintenance_reason", "x")).status_code == 400


# Lists. Source: "List Nodes", "List Nodes Detailed": provision_state (1.9), fault (1.42), instance_name (1.104).


def test_nodes_of_any_published_state_can_be_listed(service: Service) -> None:
    service.enrol()
    for state in ("active", "wait call-back", "clean failed", "service hold", "unrescue failed"):
        answer = service.bare_metal.get(f"/v1/nodes?provision_state={state.replace(' ', '%20')}")
        assert (answer.status_code, answer.json) == (200, {"nodes": []})


def test_unknown_states_and_faults_are_refused(service: Service) -> None:
    answer = service.bare_metal.get("/v1/nodes?provision_state=odd")
    assert (answer.status_code, fault(answer)) == (400, 'Provision state "odd" is not valid')
    assert service.bare_metal.get("/v1/nodes?provision_state=deleted").status_code == 400
    answer = service.bare_metal.get("/v1/nodes?fault=odd")
    assert answer.status_code == 400
    assert fault(answer).startswith("Unrecognized fault \"odd\" is specified, allowed faults are ('power failure', ")


def test_nodes_of_any_published_fault_can_be_listed(service: Service) -> None:
    service.enrol()
    for name in ("power failure", "clean failure", "rescue abort failure", "service failure"):
        assert service.bare_metal.get(f"/v1/nodes?fault={name.replace(' ', '%20')}").json == {"nodes": []}
    assert service.client("1.41").get("/v1/nodes?fault=power%20failure").status_code == 406
