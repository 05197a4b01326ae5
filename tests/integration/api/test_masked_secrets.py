"""Secrets are shown as a mask; whoever writes the mask back keeps the secret, and nobody stores a mask."""

from __future__ import annotations

from typing import Any

from tests.integration.api.service import Service

INFO = {
    "redfish_address": "https://192.0.2.1",
    "redfish_username": "u",
    "redfish_password": "hush",
    "deep": {"token": "t"},
}
MASKED = INFO | {"redfish_password": "******", "deep": {"token": "******"}}


def stored(service: Service, uuid: str) -> dict[str, Any]:
    return service.store.read(lambda tx: tx.nodes.get(uuid)).driver_info


def test_what_was_shown_can_be_written_back(service: Service) -> None:
    node = service.bare_metal.post("/v1/nodes", {"driver": "sim", "driver_info": INFO}).json
    assert node["driver_info"] == MASKED
    patch = [{"op": "replace", "path": "/driver_info", "value": MASKED | {"redfish_username": "v"}}]
    answer = service.bare_metal.call("PATCH", f"/v1/nodes/{node['uuid']}", patch)
    assert answer.status_code == 200
    assert stored(service, node["uuid"]) == INFO | {"redfish_username": "v"}


def test_a_mask_that_stands_for_nothing_is_refused(service: Service) -> None:
    refused = service.bare_metal.post("/v1/nodes", {"driver": "sim", "driver_info": MASKED})
    assert refused.status_code == 400
    assert "driver_info/redfish_password" in refused.text
    node = service.bare_metal.post("/v1/nodes", {"driver": "sim"}).json
    patch = [{"op": "add", "path": "/driver_info/ipmi_password", "value": "******"}]
    assert service.bare_metal.call("PATCH", f"/v1/nodes/{node['uuid']}", patch).status_code == 400


def test_asterisks_elsewhere_are_only_asterisks(service: Service) -> None:
    node = service.bare_metal.post("/v1/nodes", {"driver": "sim", "driver_info": {"note": "******"}}).json
    assert stored(service, node["uuid"]) == {"note": "******"}
