"""No inventory, however mutilated, makes a hook crash: it takes effect or is refused with a reason.

Nor do properties that an operator wrote, nor an earlier inventory. The inventories are those of the golden
corpus, simulated ones, and recorded ones where a checkout has them beside it.
FERROSCOPE_FUZZ=50 tries 50 times as many; tests/nightly/fuzz/test_hooks.py tries 20 times as many.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ferroscope.contracts.store import packed
from ferroscope.core.model import Inspection
from ferroscope.hooks.base import HookError
from ferroscope.hooks.pipeline import encode
from ferroscope.hooks.root_device import NAMES
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_sim import inventory as sim
from tests.corpus import ALL, load
from tests.corpus.machines import MAC, disk, lldp, nic, pci
from tests.corpus.machines import body as corpus_body
from tests.fast.hooks.runs import (
    ETH0,
    ETH1,
    ETH2,
    NODE,
    OTHER,
    Run,
    context,
    pipeline,
    port,
    recorded,
)
from tests.support.rows import each

FACTOR = int(os.environ.get("FERROSCOPE_FUZZ", "1"))
BODIES = [{"inventory": inventory, **data} for inventory, data in (case.whole() for case in load() if not case.enlarge)]
RECORDED = [
    body if "inventory" in body else {"inventory": body}
    for body in (msgspec.json.decode(path.read_bytes()) for path in recorded())
]

KEYS = st.sampled_from(
    (
        *("interfaces", "cpu", "memory", "boot", "error", "macs", "valid_interfaces", "all_interfaces"),
        *("name", "mac_address", "client_id", "ipv4_address", "ipv6_address"),
        *("pxe_interface", "architecture", "physical_mb", "count", "flags", "current_boot_mode"),
        *("lldp", "lldp_raw", "pci_devices", "vendor_id", "product_id", "bus", "data", "parsed_lldp"),
        *("disks", "root_disk", "size", "serial", "rotational"),
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
            "0452540000dd01",
            "0080c2",
            "zz",
            "aes",
            "10de",
            "a:b,c",
            ">= 1",
            "1" * 300,
        ]
    ),
)
VALUES = SCALARS | st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | KEYS, inner, max_size=3),
    max_leaves=6,
)
MAPPED: dict[str, Any] = {
    "pci_device_alias": ('{"vendor_id": "10de", "product_id": "1eb8", "name": "gpu"}',),
    "physical_network_cidr_map": ("192.0.2.0/24:net_a", "2001:db8::/32:net_b"),
}
REMOVED = object()
OPTIONS = st.fixed_dictionaries(
    {
        "add_ports": st.sampled_from(["all", "active", "pxe", "disabled"]),
        "keep_ports": st.sampled_from(["all", "present", "added"]),
        "update_pxe_enabled": st.booleans(),
        "extra_hardware_strict": st.booleans(),
        "disk_partitioning_spacing": st.sampled_from([0, 1, 1000]),
        **{name: st.just(value) for name, value in MAPPED.items()},
    }
)
HOOKS = st.lists(st.sampled_from(["", "", "?"]), min_size=len(ALL), max_size=len(ALL)).map(
    lambda marks: [mark + name for mark, name in zip(marks, ALL, strict=True)]
)
PORTS = st.lists(st.sampled_from([*(MAC.format(number) for number in range(2)), ETH0]), unique=True)
ELSEWHERE = st.sampled_from([{}, {ETH2: OTHER}, {MAC.format(2): OTHER}])
EXPRESSIONS = st.one_of(
    VALUES,
    st.builds(
        lambda symbol, rest: f"{symbol} {rest}",
        st.sampled_from(["", "=", "==", ">=", "s==", "s!=", "<in>", "<all-in>", "<or>", "<range-in>", "<", "s>"]),
        st.sampled_from(["", "1", "[ 1 2 ]", "( 2 1 )", "[1 inf)", "nan", "a <or> b", "9" * 400]) | st.text(max_size=6),
    ),
)
HINTS = VALUES | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), EXPRESSIONS, max_size=4)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "capabilities": VALUES | st.sampled_from(["a:b", "a:b,c", "boot_mode:bios,gpu:3"]),
        "root_device": HINTS,
        "skip_block_devices": VALUES | st.lists(HINTS, max_size=2),
    },
)


# Of everything something.
RICH = corpus_body(
    {"interfaces": [nic(0, lldp=lldp()), nic(1)], "disks": [disk("a"), disk("b")]},
    pci_devices=[pci("10de", "1eb8"), pci("8086", "1563")],
    data=[["cpu", "physical_0", "cores", "8"], ["disk", "sda", "size", 480]],
    lldp_raw={"eth1": lldp()},
)


def organizational(subtype: int, rest: bytes) -> str:
    return bytes([0, 0x80, 0xC2, subtype]).hex() + rest.hex() if subtype % 2 else f"00120f{subtype:02x}{rest.hex()}"


def address(subtype: int, family: int, rest: bytes) -> str:
    return bytes([subtype, family]).hex() + rest.hex()


def place(draw: st.DrawFn, body: dict[str, Any]) -> tuple[Any, Any]:
    """Return a container within ``body`` and one of its keys or indexes; every branch is as likely as the others."""
    container: Any = body
    while True:
        keys = list(container) if isinstance(container, dict) else range(len(container))
        key = draw(st.sampled_from(keys))
        inner = container[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 5)) == 0:
            return container, key
        container = inner


@st.composite
def mutilated(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` with a few values at random places replaced, removed, repeated or added."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 6))):
        container, key = place(draw, body or {"": None})
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


def check(
    body: Any,
    hooks: Sequence[str] = ALL,
    ports: Sequence[str] = (),
    elsewhere: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
    properties: dict[str, Any] | None = None,
    previous: Any = None,
) -> None:
    data = dict(body)
    inventory = data.pop("inventory", {})
    before = copy.deepcopy((inventory, data))
    task = context([port(mac) for mac in ports], elsewhere, copy.deepcopy(properties or {}))
    if isinstance(previous, dict):
        task.store.write(lambda tx: inspected(tx, previous))
    result = error = None
    with structlog.testing.capture_logs() as logs:
        try:
            result = Run(task, pipeline(hooks, **(options or {})).run(task, inventory, data))
        except HookError as exc:
            error = exc
    if result is not None:
        check_result(result, elsewhere or {})
    if error is not None:
        assert error.reason in (Reason.INVALID_INVENTORY, Reason.RAMDISK_ERROR, Reason.HOOK_FAILED)
        check_message(error.message)
    assert logs == [], "a hook crashed"
    assert (inventory, data) == before


def inspected(tx: Any, inventory: dict[str, Any]) -> None:
    tx.inspections.add(Inspection(uuid="before", node=NODE, state=State.FINISHED, started_at=1.0))
    tx.data.save("before", NODE, packed({"inventory": msgspec.json.encode(inventory)}))


def check_result(result: Run, elsewhere: dict[str, str]) -> None:
    msgspec.json.decode(encode(result.plugin_data))
    assert isinstance(result.node.properties.get("cpu_arch", ""), str)
    for name in ("memory_mb", "cpus", "local_gb"):
        assert isinstance(result.node.properties.get(name, 1), int)
        assert result.node.properties.get(name, 1) >= 0
    for mac, found in result.ports().items():
        assert mac_addresses.normalized_mac(mac) == mac == found.address
        assert isinstance(found.pxe_enabled, bool)
        assert mac not in elsewhere
    msgspec.json.encode(list(result.ports().values()))
    for note in result.notes:
        check_message(note.message)


def check_message(message: str) -> None:
    assert len(message) < 5000
    assert message.replace("\n", "").replace("\t", "").isprintable()


ODD: tuple[Any, ...] = (None, 10**30, {"x": [1]}, REMOVED)
# tests/nightly/fuzz/test_hooks.py tries these.
OTHER_ODD: tuple[Any, ...] = (-1, "9" * 30, [], True, 2.5, "", "x", {}, [[]], [{}], [None])


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Give every container within ``value`` with each of its keys or indexes."""
    if isinstance(value, dict | list):
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places(item)


@each("odd", ODD)
def test_every_value_may_be_an_odd_one(odd: Any) -> None:
    replace_each(odd)


def replace_each(odd: Any) -> None:
    """Process an inventory with each of its values replaced in turn."""
    body, hooks = copy.deepcopy(RICH), pipeline(ALL, **MAPPED)
    for container, key in places(body):
        kept = container[key]
        container[key] = odd
        if odd is REMOVED:
            del container[key]
        inventory, data = body.get("inventory", {}), {name: part for name, part in body.items() if name != "inventory"}
        with structlog.testing.capture_logs() as logs, contextlib.suppress(HookError):
            task = context([port(MAC.format(0))], properties={"root_device": {"size": "> 1"}})
            check_result(Run(task, hooks.run(task, inventory, data)), {})
        assert logs == [], f"a hook crashed on {key} = {odd}"
        if odd is REMOVED and isinstance(container, list):
            container.insert(key, kept)
        else:
            container[key] = kept


@settings(max_examples=10 * FACTOR)
@given(mutilated(RICH), HOOKS, PORTS, ELSEWHERE, OPTIONS, PROPERTIES)
def test_a_mutilated_inventory_is_processed_or_refused(
    body: dict[str, Any],
    hooks: list[str],
    ports: list[str],
    elsewhere: dict[str, str],
    options: dict[str, Any],
    properties: dict[str, Any],
) -> None:
    check(body, hooks, ports, elsewhere, options, properties)


@settings(max_examples=9 * FACTOR)
@given(st.sampled_from(BODIES).flatmap(mutilated), HOOKS, OPTIONS, PROPERTIES)
def test_a_mutilated_case_of_the_corpus_is_processed_or_refused(
    body: dict[str, Any], hooks: list[str], options: dict[str, Any], properties: dict[str, Any]
) -> None:
    check(body, hooks, [ETH0], {}, options, properties)


@settings(max_examples=4 * FACTOR)
@given(st.sampled_from([sim.document(5, size=sim.MIN_SIZE), *RECORDED]).flatmap(mutilated), PORTS, OPTIONS)
def test_a_mutilated_inventory_of_a_server_is_processed_or_refused(
    body: dict[str, Any], ports: list[str], options: dict[str, Any]
) -> None:
    check(body, ALL, ports, {}, options)


@settings(max_examples=9 * FACTOR)
@given(PROPERTIES, VALUES | mutilated(BODIES[0]["inventory"]))
def test_no_property_and_no_earlier_inventory_makes_a_hook_crash(properties: dict[str, Any], previous: Any) -> None:
    check(BODIES[0], properties=properties, previous=previous)


FRAMES = st.lists(
    st.tuples(st.sampled_from([*range(10), 127]), st.binary(max_size=12).map(bytes.hex))
    | st.tuples(
        st.sampled_from([1, 2, 8]), st.builds(address, st.integers(0, 9), st.integers(0, 7), st.binary(max_size=17))
    )
    | st.tuples(st.just(127), st.builds(organizational, st.integers(0, 8), st.binary(max_size=10)))
    | VALUES,
    max_size=8,
)


@settings(max_examples=13 * FACTOR)
@given(FRAMES | VALUES, FRAMES)
def test_no_lldp_makes_a_hook_crash(first: Any, second: Any) -> None:
    interfaces = [nic(0, lldp=first), nic(1)]
    check(corpus_body({"interfaces": interfaces}, lldp_raw={"eth1": second}), ports=[MAC.format(0), MAC.format(1)])


@settings(max_examples=13 * FACTOR)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "interfaces": VALUES
            | st.lists(st.dictionaries(KEYS, VALUES, max_size=5) | VALUES, max_size=4)
            | st.lists(st.fixed_dictionaries({"name": VALUES, "mac_address": VALUES, "client_id": VALUES}), max_size=3),
            "boot": VALUES | st.fixed_dictionaries({"pxe_interface": VALUES}),
            "cpu": VALUES | st.fixed_dictionaries({"architecture": VALUES, "count": VALUES, "flags": VALUES}),
            "memory": VALUES | st.fixed_dictionaries({"physical_mb": VALUES}),
            "disks": VALUES | st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=3),
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
