"""The processed data in the words of ironic-inspector, beside our own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.api.introspection.introspections import named


def found(extra: dict[str, Any]) -> Any:
    return msgspec.json.decode(named(msgspec.json.encode(extra)))


def test_interfaces_have_the_names_that_the_inspectors_client_reads() -> None:
    nic = {"mac_address": "52:54:00:00:00:01", "ipv4_address": None, "ipv6_address": "2001:db8::1", "pxe_enabled": True}
    switch = {"switch_port_id": "Ethernet1"}
    extra = {
        "all_interfaces": {"eno1": nic},
        "valid_interfaces": {"eno1": nic},
        "parsed_lldp": {"eno1": switch},
        "x": 1,
    }
    theirs = {"mac": "52:54:00:00:00:01", "ip": "2001:db8::1", "pxe": True, "lldp_processed": switch}
    assert found(extra) == extra | {
        "all_interfaces": {"eno1": nic | theirs},
        "interfaces": {"eno1": nic | theirs},
    }


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"all_interfaces": 5, "parsed_lldp": []},
        {"all_interfaces": {"eno1": 5}, "parsed_lldp": {"eno1": 5}},
        {
            "all_interfaces": {"eno1": {"mac": "x", "ip": 1, "pxe": 2}},
            "interfaces": [],
            "valid_interfaces": {"eno1": {}},
        },
    ],
)
def test_what_is_of_another_shape_or_named_already_stays(extra: dict[str, Any]) -> None:
    assert found(extra) == extra
