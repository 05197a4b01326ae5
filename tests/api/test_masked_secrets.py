"""Secrets are shown as a mask; whoever writes the mask back keeps the secret, and nobody stores a mask."""

from __future__ import annotations

from typing import Any

from tests.api.service import Service

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


def patched(service: Service, uuid: str, info: dict[str, Any]) -> int:
    patch = [{"op": "add", "path": "/driver_info", "value": info}]
    return service.bare_metal.call("PATCH", f"/v1/nodes/{uuid}", patch).status_code


def test_what_a_url_holds_beside_its_place_is_masked_and_can_be_written_back(service: Service) -> None:
    info = {
        "redfish_address": "https://root:hush@192.0.2.1",
        "deploy_iso": "http://host/x.iso?a=1&token=hush&temp_url_sig=hush",
    }
    node = service.bare_metal.post("/v1/nodes", {"driver": "sim", "driver_info": info}).json
    shown = {
        "redfish_address": "https://******@192.0.2.1",
        "deploy_iso": "http://host/x.iso?a=1&token=******&temp_url_sig=******",
    }
    assert node["driver_info"] == shown
    assert patched(service, node["uuid"], shown | {"note": "n"}) == 200
    assert stored(service, node["uuid"]) == info | {"note": "n"}
    assert patched(service, node["uuid"], shown | {"redfish_address": "https://******@192.0.2.9"}) == 400
    assert patched(service, node["uuid"], shown | {"deploy_iso": "http://other/x.iso?token=******"}) == 400
    assert stored(service, node["uuid"]) == info | {"note": "n"}


def test_secrets_within_a_list_are_kept_or_asked_for(service: Service) -> None:
    info = {"accounts": [{"user": "a", "password": "one"}, {"user": "b", "password": "two"}]}
    node = service.bare_metal.post("/v1/nodes", {"driver": "sim", "driver_info": info}).json
    first, second = node["driver_info"]["accounts"]
    assert first == {"user": "a", "password": "******"}
    assert patched(service, node["uuid"], {"accounts": [first, second]}) == 200
    assert stored(service, node["uuid"]) == info
    assert patched(service, node["uuid"], {"accounts": [second]}) == 200
    assert stored(service, node["uuid"]) == {"accounts": [info["accounts"][1]]}
    assert patched(service, node["uuid"], {"accounts": [first]}) == 400
    assert stored(service, node["uuid"]) == {"accounts": [info["accounts"][1]]}
