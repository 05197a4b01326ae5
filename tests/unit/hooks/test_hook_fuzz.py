"""No inventory, however mutilated, makes a hook crash: it takes effect or is refused with a reason."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ferroscope.domain import macs
from ferroscope.domain.reasons import Reason
from ferroscope.hooks.errors import HookError
from ferroscope.hooks.pipeline import encode
from ferroscope.sim import inventory as sim
from tests.unit.hooks.runs import ETH0, ETH1, ETH2, OTHER, Run, machine, port, run

ALL = ("ramdisk-error", "validate-interfaces", "ports", "architecture", "memory")

KEYS = st.sampled_from(
    (
        *("interfaces", "cpu", "memory", "boot", "error", "macs", "valid_interfaces", "all_interfaces"),
        *("name", "mac_address", "client_id", "ipv4_address", "ipv6_address"),
        *("pxe_interface", "architecture", "physical_mb"),
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**300, 10**301),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        [
            "",
            "\x00",
            "\x1b[31m",
            "lo",
            "eth0",
            ETH0,
            ETH1.upper(),
            "01-aa-bb-cc-00-00-02",
            "::1",
            "fe80::1%",
            "%",
            "127.0.0.1",
            "1" * 300,
        ]
    ),
)
VALUES = SCALARS | st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | KEYS, inner, max_size=3),
    max_leaves=6,
)
OPTIONS = st.fixed_dictionaries(
    {
        "add_ports": st.sampled_from(["all", "active", "pxe", "disabled"]),
        "keep_ports": st.sampled_from(["all", "present", "added"]),
        "update_pxe_enabled": st.booleans(),
    }
)
HOOKS = st.lists(st.sampled_from(["", "?"]), min_size=5, max_size=5).map(
    lambda marks: [mark + name for mark, name in zip(marks, ALL, strict=True)]
)
PORTS = st.lists(st.sampled_from([ETH0, ETH1, "aa:bb:cc:00:00:77"]), unique=True)
ELSEWHERE = st.sampled_from([{}, {ETH2: OTHER}])


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Give every container within ``value`` with each of its keys or indexes."""
    if isinstance(value, dict | list):
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places(item)


@st.composite
def mutilated(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` with a few values at random places replaced, removed, repeated or added."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 6))):
        container, key = draw(st.sampled_from(list(places(body)) or [({"": None}, "")]))
        change = draw(st.sampled_from(["replace", "replace", "replace", "remove", "repeat", "add"]))
        if change == "replace":
            container[key] = draw(VALUES)
        elif change == "remove":
            del container[key]
        elif isinstance(container, list):
            container.append(copy.deepcopy(container[key]) if change == "repeat" else draw(VALUES))
        else:
            container[draw(KEYS)] = copy.deepcopy(container[key]) if change == "repeat" else draw(VALUES)
    return body


def check(body: Any, hooks: list[str], ports: list[str], elsewhere: dict[str, str], options: dict[str, Any]) -> None:
    data = dict(body)
    inventory = data.pop("inventory", {})
    before = copy.deepcopy((inventory, data))
    result, error = None, None
    with structlog.testing.capture_logs() as logs:
        try:
            result = run(hooks, inventory, data, ports=[port(mac) for mac in ports], elsewhere=elsewhere, **options)
        except HookError as exc:
            error = exc
    if result is not None:
        check_result(result, elsewhere)
    if error is not None:
        assert error.reason in (Reason.INVALID_INVENTORY, Reason.RAMDISK_ERROR, Reason.HOOK_FAILED)
        check_message(error.message)
    assert logs == [], "a hook crashed"
    assert (inventory, data) == before


def check_result(result: Run, elsewhere: dict[str, str]) -> None:
    msgspec.json.decode(encode(result.plugin_data))
    assert isinstance(result.node.properties.get("cpu_arch", ""), str)
    assert isinstance(result.node.properties.get("memory_mb", 1), int)
    for mac, found in result.ports().items():
        assert macs.normalize(mac) == mac == found.address
        assert isinstance(found.pxe_enabled, bool)
        assert mac not in elsewhere
    msgspec.json.encode(list(result.ports().values()))
    for note in result.notes:
        check_message(note.message)


def check_message(message: str) -> None:
    assert len(message) < 5000
    assert message.replace("\n", "").replace("\t", "").isprintable()


@settings(max_examples=600)
@given(mutilated({"inventory": machine(), "error": None}), HOOKS, PORTS, ELSEWHERE, OPTIONS)
def test_a_mutilated_inventory_is_processed_or_refused(
    body: dict[str, Any], hooks: list[str], ports: list[str], elsewhere: dict[str, str], options: dict[str, Any]
) -> None:
    check(body, hooks, ports, elsewhere, options)


@settings(max_examples=100)
@given(mutilated(sim.document(5, size=sim.MIN_SIZE)), PORTS, OPTIONS)
def test_a_mutilated_inventory_of_a_server_is_processed_or_refused(
    body: dict[str, Any], ports: list[str], options: dict[str, Any]
) -> None:
    check(body, list(ALL), ports, {}, options)


@settings(max_examples=200)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "interfaces": VALUES
            | st.lists(st.dictionaries(KEYS, VALUES, max_size=5) | VALUES, max_size=4)
            | st.lists(st.fixed_dictionaries({"name": VALUES, "mac_address": VALUES, "client_id": VALUES}), max_size=3),
            "boot": VALUES | st.fixed_dictionaries({"pxe_interface": VALUES}),
            "cpu": VALUES | st.fixed_dictionaries({"architecture": VALUES}),
            "memory": VALUES | st.fixed_dictionaries({"physical_mb": VALUES}),
        },
    ),
    st.dictionaries(KEYS, VALUES, max_size=4),
    HOOKS,
    OPTIONS,
)
def test_invented_data_are_processed_or_refused(
    inventory: dict[str, Any], plugin_data: dict[str, Any], hooks: list[str], options: dict[str, Any]
) -> None:
    check({**plugin_data, "inventory": inventory}, hooks, [ETH0], {}, options)
