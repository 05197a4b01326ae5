"""Secrets in conditions and actions are masked by name, wherever the name is."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.rules import masking
from ferroscope.rules.data import InvalidRuleError
from tests.support.rows import each

SECRETS: list[dict[str, Any]] = [
    {"op": "set-attribute", "args": {"path": "/driver_info/redfish_password", "value": "hunter2"}},
    {"op": "set-attribute", "args": {"path": "driver_info.redfish_password", "value": "hunter2"}},
    {"op": "set-attribute", "args": ["/driver_info/redfish_password", "hunter2"]},
    {"op": "set-attribute", "args": {"path": "/driver_info", "value": {"redfish_password": "hunter2"}}},
    {"op": "set-attribute", "args": {"path": "/driver_info/{item}", "value": "hunter2"}, "loop": ["ipmi_password"]},
    {
        "op": "set-attribute",
        "args": {"path": "{item[path]}", "value": "{item[value]}"},
        "loop": [{"path": "/driver_info/redfish_password", "value": "hunter2"}],
    },
    {"op": "set-attribute", "args": ["{item[0]}", "{item[1]}"], "loop": [["driver_info/ipmi_password", "hunter2"]]},
    {"op": "set-attribute", "args": {"path": "/extra/all", "value": [{"name": "Authorization", "value": "hunter2"}]}},
    {"op": "extend-attribute", "args": ["/extra/tokens", "hunter2"]},
    {"op": "set-plugin-data", "args": {"path": "/bmc/password", "value": {"of": ["hunter2"]}}},
    {"op": "set-port-attribute", "args": ["{item}", "extra/password", "hunter2"], "loop": ["52:54:00:00:00:01"]},
    {"op": "set-capability", "args": {"name": "root_password", "value": "hunter2"}},
    {"op": "api-call", "args": {"url": "https://host/p?a=1&token=hunter2"}},
    {"op": "api-call", "args": ["https://host/p?a=1&token=hunter2"]},
    {"op": "api-call", "args": {"url": "{node[extra][base]}/p?token=hunter2"}},
    {"op": "api-call", "args": {"url": "https://host", "headers": {"Authorization": "Bearer hunter2"}}},
    {"op": "api-call", "args": {"url": "https://host", "headers": {"Cookie": "a=hunter2"}}},
    {"op": "api-call", "args": {"url": "https://host", "proxies": {"https": "http://p/?sig=hunter2"}}},
    {"op": "log", "args": {"msg": "called https://host/?api_key=hunter2"}},
    {"op": "!eq", "args": ["{inventory[bmc_password]}", "hunter2"]},
    {"op": "eq", "args": {"values": ["{inventory.bmc_password}", "hunter2"]}},
    {"op": "eq", "args": {"field": "data://inventory.bmc_password", "value": "hunter2"}},
    {"op": "matches", "args": ["{inventory[token]}", "hunter2.*"]},
]


@each("item", SECRETS)
def test_a_secret_is_masked_and_can_be_written_back(item: dict[str, Any]) -> None:
    (shown,) = masking.mask_items([item])
    assert "hunter2" not in str(shown)
    assert shown.keys() == item.keys()
    assert masking.restore_items("actions", [shown], [item]) == [item]
    with pytest.raises(InvalidRuleError):
        masking.restore_items("actions", [shown], [])


@each(
    "item",
    [
        {"op": "set-attribute", "args": {"path": "/extra/net", "value": "tokenring"}},
        {"op": "set-attribute", "args": ["/extra/net", "tokenring"]},
        {"op": "set-capability", "args": {"name": "boot_mode", "value": "uefi"}},
        {"op": "api-call", "args": {"url": "https://host/?a=b", "headers": {"Accept": "text/plain"}}},
        {"op": "fail", "args": {"msg": "the password of {node[name]} is missing"}},
        {"op": "is-empty", "args": ["{node[driver_info][redfish_password]}"]},
        {"op": "!is-empty", "args": {"field": "node://driver_info.redfish_password"}},
        {"op": "set-attribute", "args": {"path": "/extra/{item}", "value": True}, "loop": ["a", "b"]},
        {"op": "future", "args": ["a", "b"]},
    ],
)
def test_what_is_no_secret_is_shown(item: dict[str, Any]) -> None:
    assert masking.mask_items([item]) == [item]


def test_a_secret_cannot_be_moved_to_where_it_is_shown() -> None:
    stored = {"op": "set-attribute", "args": {"path": "/driver_info/redfish_password", "value": "hunter2"}}
    for moved in (
        {"op": "set-attribute", "args": {"path": "/extra/x", "value": "******"}},
        {"op": "set-attribute", "args": {"path": "/driver_info/other_password", "value": "******"}},
    ):
        with pytest.raises(InvalidRuleError):
            masking.restore_items("actions", [moved], [stored])


def test_equal_masks_keep_their_places() -> None:
    stored = [{"op": "extend-attribute", "args": ["/extra/tokens", value]} for value in ("one", "two")]
    assert masking.restore_items("actions", masking.mask_items(stored), stored) == stored
