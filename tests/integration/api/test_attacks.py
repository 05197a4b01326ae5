"""Attacks that need no credentials, each as somebody tried it: none of them harms, on any of the databases."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.config.settings import DiscoverySettings
from tests.integration.api.service import Service, fault
from tests.support import examples


def call(service: Service, *macs: str, **inventory: Any) -> Any:
    """Call back as a ramdisk does."""
    nics = [{"name": f"e{number}", "mac_address": mac} for number, mac in enumerate(macs)]
    body = {"inventory": {"interfaces": nics, "cpu": {"architecture": "x86_64"}, **inventory}}
    return service.bare_metal.post("/v1/continue_inspection", body)


@pytest.mark.parametrize(
    "scope", ["a" * 300, "x\ny", "\U0001f4a9" * 30, "x]@127.0.0.1:1", "b" * 1_000_000, "\x1b]0;owned\x07"], ids=repr
)
def test_a_scope_of_an_ipv6_address_means_nothing_and_is_stored_nowhere(discovering: Service, scope: str) -> None:
    scope = scope[:300] if scope[0] != "b" else scope
    answer = call(discovering, examples.mac(), bmc_v6address=f"fe80::1%{scope}")
    assert answer.status_code == 202
    info = discovering.node(answer.json["node"]["uuid"]).driver_info
    assert info in ({}, {"bmc_address": "fe80::1"})
    assert len(str(call(discovering, "no mac").json)) < 1000


@pytest.mark.parametrize("arch", ["A" * 300, "A" * 1_000_000, "\U0001f4a9", ["x"], {"a": None}, 10**300])
def test_odd_values_of_an_inventory_are_never_a_fault(discovering: Service, arch: Any) -> None:
    assert call(discovering, examples.mac(), cpu={"architecture": arch}).status_code == 202


@pytest.mark.parametrize("host", ['x"<>', "a b", "a/b", "a\x01", "a@b", "[::1", "x" * 300, "a?b", "é"])
def test_a_host_that_is_none_is_refused_and_not_echoed(service: Service, host: str) -> None:
    answer = service.bare_metal.get("/v1", headers={"Host": host})
    assert answer.status_code == 400
    assert host not in fault(answer)


@pytest.mark.parametrize("host", ["a", "a:80", "[::1]:6385", "192.0.2.1", "a_b.example.", "[fe80::1%25eth0]"])
def test_a_host_that_is_one_is_in_the_links(service: Service, host: str) -> None:
    answer = service.bare_metal.get("/v1", headers={"Host": host})
    assert answer.status_code == 200
    assert f"http://{host}/" in answer.text


STORED = {"redfish_address": "https://192.0.2.10", "redfish_username": "root", "redfish_password": "Sup3r-S3cret!"}


def op(kind: str, path: str, value: Any = None) -> dict[str, Any]:
    return {"op": kind, "path": path} | ({} if kind == "remove" else {"value": value})


@pytest.mark.parametrize(
    "operations",
    [
        [op("replace", "/driver_info/redfish_address", "http://127.0.0.1:9")],
        [op("add", "/driver_info/redfish_address", "https://192.0.2.66")],
        [op("replace", "/driver_info", STORED | {"redfish_address": "https://evil", "redfish_password": "******"})],
        [
            op("replace", "/driver_info/redfish_address", "https://evil"),
            op("replace", "/driver_info/redfish_password", "******"),
        ],
        [op("add", "/driver_info/redfish_verify_ca", False)],
        [op("add", "/driver_info/redfish_auth_type", "basic")],
        [op("replace", "/driver", "sim")],
        [op("add", "/driver_info/ipmi_bridging", "single")],
    ],
    ids=lambda operations: str(operations[0]["path"]),
)
def test_a_stored_password_cannot_be_sent_to_another_place(service: Service, operations: list[Any]) -> None:
    ident = service.enrol(driver_info=STORED)
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", *operations)
    assert answer.status_code == 400
    assert "redfish_password" in fault(answer)
    assert "Sup3r" not in answer.text
    assert service.node(ident).driver_info == STORED


@pytest.mark.parametrize(
    "operations",
    [
        [
            op("replace", "/driver_info/redfish_address", "https://192.0.2.11"),
            op("add", "/driver_info/redfish_password", "Sup3r-S3cret!"),
        ],
        [op("replace", "/driver_info", {"redfish_address": "https://a", "redfish_password": "another"})],
        [op("replace", "/driver_info", {"redfish_address": "https://a"})],
        [op("remove", "/driver_info/redfish_password"), op("remove", "/driver_info/redfish_address")],
        [op("add", "/driver_info/redfish_verify_ca", True)],
        [op("add", "/driver_info/redfish_system_id", "/redfish/v1/Systems/1"), op("add", "/extra/a", 1)],
        [op("replace", "/driver_info/redfish_username", "other")],
        [op("replace", "/driver_info", STORED | {"redfish_password": "******"})],
    ],
    ids=lambda operations: str(operations[0].get("value", "remove")),
)
def test_a_change_with_its_own_secrets_or_without_any_goes_through(service: Service, operations: list[Any]) -> None:
    ident = service.enrol(driver_info=STORED)
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", *operations)
    assert answer.status_code == 200, answer.text


@pytest.fixture
def discovering(database_url: str) -> Any:
    """Give a service that discovers unknown machines, on each of the databases."""
    served = Service(database_url, sections={"auto_discovery": DiscoverySettings(enabled=True, driver="fake-hardware")})
    yield served
    served.close()
