"""Makes callbacks: inventories of simulated machines, mutilated as documents and as bytes.

Structure-aware: most of them still are JSON, still have a MAC that is waited for, and so reach the hooks.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from ferroscope_sim.inventory import generate

Framing = Literal[
    "length", "chunked", "abort", "short", "long", "bad-chunk", "bad-length", "expect", "both", "pipelined", "slow"
]
_FRAMINGS: Final[tuple[tuple[Framing, float], ...]] = (
    ("length", 90.0),
    ("chunked", 4.0),
    ("abort", 1.5),
    ("short", 0.7),
    ("long", 0.4),
    ("bad-chunk", 0.7),
    ("bad-length", 0.7),
    ("expect", 0.5),
    ("both", 0.5),
    ("pipelined", 0.8),
    ("slow", 0.2),
)
_BASES: Final = 40
_ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.1, -0.0, 1e308, 5e-324,
    float("nan"), float("inf"), float("-inf"), "", " ", "0", "-1", "null", "\x00", "\x1b[31m", "\ud800", "\udfff\ud800",
    "é", "\u202e", "🦀" * 50, "%s%n{0}{node.driver_info}", "../../etc/passwd", "'; DROP TABLE nodes; --", "1" * 300,
    "0" * 5000, "127.0.0.1", "::1", "fe80::1%eth0", "999.1.1.1", "10.0.0.1/33", "zz:zz:zz:zz:zz:zz",
    "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01-AA-BB-CC-DD-EE-FF", "lo", "eth0",
    [], {}, [[]], {"": ""}, [None], {"a": {"b": {"c": []}}},
    {"interfaces": []}, {"mac_address": None}, ["aes", 7], "0x8086", "64-bit", "1e999",
)  # fmt: skip
_KEYS: Final = (
    "inventory", "interfaces", "mac_address", "name", "ipv4_address", "ipv6_address", "client_id", "lldp", "lldp_raw",
    "cpu", "architecture", "count", "flags", "memory", "physical_mb", "disks", "size", "serial", "boot", "error",
    "pxe_interface", "current_boot_mode", "bmc_address", "bmc_v6address", "system_vendor", "root_disk", "data", "macs",
    "all_interfaces", "valid_interfaces", "pci_devices", "vendor_id", "product_id", "logs", "auto_discovered", "",
    "__class__", "boot_interface", "local_gb", "extra", "numa_topology",
)  # fmt: skip
_LLDP: Final = (
    [[1, "04112233aabbcc"], [2, "07373334"], [0, ""]], [[127, "0012bb01" * 90]], [[1, "zz"]], [[9999, "00"]], [[5]],
    [[1, None]], "nonsense", [[127, "0080c203" + "00" * 3]], [[-1, "00"], [8, "0501"]], [["1", "04"]],
)  # fmt: skip


class Callback(msgspec.Struct, frozen=True):
    """What is sent: to which of the two APIs, with which version of it, naming a node or not, and how."""

    number: int
    body: bytes
    framing: Framing
    introspection: bool
    version: str | None
    query: str


class Mutator:
    """Makes the callbacks of one run; ``machines`` are the MACs and UUIDs that are known to the service."""

    def __init__(self, seed: int, machines: list[tuple[str, str]]) -> None:
        self._seed = seed
        self._machines = machines
        self._bases = [_small(index) for index in range(_BASES)]

    def make(self, number: int) -> Callback:
        """Return callback ``number``, always the same."""
        chance = random.Random(f"{self._seed}/{number}")
        mac, uuid = chance.choice(self._machines)
        if chance.random() < 0.02:
            mac = f"02:f0:{number >> 24 & 255:02x}:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
        document = self._document(chance, mac)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5))):
            _mutilate(chance, document)
        body = _encode(chance, document)
        if chance.random() < 0.25:
            body = chance.choice(_SPOILERS)(chance, body)
        named = chance.random() < 0.15
        return Callback(
            number=number,
            body=body,
            framing=chance.choices([name for name, _ in _FRAMINGS], [weight for _, weight in _FRAMINGS])[0],
            introspection=not named and chance.random() < 0.25,
            version=chance.choice(("1.84", "1.95", "latest")) if named else None,
            query=f"?node_uuid={chance.choice((uuid, uuid, uuid[:-1], 'nonsense', ''))}" if named else "",
        )

    def plain(self, mac: str) -> bytes:
        """Return a body of the machine with which nothing is wrong."""
        return json.dumps(self._document(random.Random(0), mac)).encode()

    def _document(self, chance: random.Random, mac: str) -> Any:
        document = msgspec.json.decode(chance.choice(self._bases))
        document["inventory"]["interfaces"][0]["mac_address"] = mac
        return document


def _small(index: int) -> bytes:
    """Return a simulated machine's body without most of what only makes it long; its first NIC is left."""
    document = msgspec.json.decode(generate(index, size=10_000))
    document["pci_devices"] = document["pci_devices"][:3]
    inventory = document["inventory"]
    inventory["interfaces"] = inventory["interfaces"][: 1 + index % 3]
    inventory["disks"] = inventory["disks"][: 1 + index % 2]
    for nic in inventory["interfaces"]:
        nic["mac_address"] = f"02:f1:00:00:{index:02x}:01"
    inventory["bmc_address"] = inventory["bmc_v6address"] = None
    inventory["cpu"]["flags"] = inventory["cpu"].get("flags", [])[:12]
    return msgspec.json.encode(document)


def _place(chance: random.Random, document: Any) -> tuple[Any, Any]:
    """Return a container somewhere in the document and one of its keys or indexes."""
    here: Any = document
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return here, None
        key = chance.choice(keys)
        if not isinstance(here[key], dict | list) or chance.random() < 0.25:
            return here, key
        here = here[key]


def _mutilate(chance: random.Random, document: Any) -> None:
    container, key = _place(chance, document)
    if key is None or (container is document and key == "inventory" and chance.random() < 0.8):
        return
    kind = chance.randrange(12)
    if kind <= 3:
        container[key] = copy.deepcopy(chance.choice(_ODD))
    elif kind == 4:
        del container[key]
    elif kind == 5:
        container[key] = [container[key]] * chance.choice((1, 2, 40))
    elif kind == 6:
        container[key] = {chance.choice(_KEYS): container[key]}
    elif kind == 7 and isinstance(container, dict):
        container[chance.choice(_KEYS)] = container.pop(key)
    elif kind == 8 and isinstance(container, dict):
        container[chance.choice(_KEYS)] = copy.deepcopy(chance.choice(_ODD))
    elif kind == 9:
        container[key] = chance.choice("a0 \u00fc") * chance.choice((100, 1000, 1000, 70_000))
    elif kind == 10:
        container[key] = copy.deepcopy(chance.choice(_LLDP))
        if chance.random() < 0.5 and isinstance(container, dict):
            container["lldp"] = container.pop(key)
    else:
        container[key] = nested(chance.choice((5, 24, 26, 60)))


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"n": value}
    return value


def _encode(chance: random.Random, document: Any) -> bytes:
    plain = chance.random() < 0.5
    return json.dumps(document, ensure_ascii=plain).encode("utf-8", "surrogatepass")


Spoiler = Callable[[random.Random, bytes], bytes]


def _cut(chance: random.Random, body: bytes) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def _flip(chance: random.Random, body: bytes) -> bytes:
    spoiled = bytearray(body)
    for _ in range(chance.choice((1, 1, 3, 30))):
        spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
    return bytes(spoiled)


def _insert(chance: random.Random, body: bytes) -> bytes:
    junk = chance.choice(
        (b"\xff\xfe", b"\xc3", b"\x00", b"\xed\xa0\x80", b"NaN", b",", b"}", b"/*", b'"', b"\\u0000", b"1e999")
    )
    at = chance.randrange(len(body) + 1)
    return body[:at] + junk + body[at:]


def _duplicate_key(chance: random.Random, body: bytes) -> bytes:
    first = chance.choice((b'"inventory":{},', b'"inventory":null,', b'"error":"x","error":"y",', b'"inventory":[[]],'))
    last = chance.choice((b',"inventory":{"interfaces":[]}}', b',"error":[1]}', b',"inventory":7}'))
    return b"{" + first + body[1:] if chance.random() < 0.6 else body[:-1] + last


def _deep(chance: random.Random, body: bytes) -> bytes:
    depth = chance.choice((26, 200, 2000, 100_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return body[:-1] + b',"deep":' + opening * depth + b"1" + closing * chance.choice((depth, 0, depth + 1)) + b"}"


def _whole(chance: random.Random, _body: bytes) -> bytes:
    return chance.choice(
        (b"", b"null", b"[]", b"{}", b'"x"', b"1e999", b"\xef\xbb\xbf{}", b"{" * 1000, b"-",
         b'{"inventory":{"interfaces":[{}]}}', b'{"inventory":{"interfaces":[{"mac_address":1}]}}',
         b'{"inventory":{"interfaces":' + b"[" * 30 + b"]" * 30 + b"}}",
         b"9" * 5000, b'{"inventory":"x"}', b"\x00" * 64, b"PK\x03\x04", b"<xml/>")
    )  # fmt: skip


def _many(chance: random.Random, body: bytes) -> bytes:
    nic = b'{"name":"x","mac_address":"02:f2:00:00:%02x:%02x"}'
    nics = b",".join(nic % (i >> 8, i & 255) for i in range(chance.choice((300, 511, 513, 3000))))
    return b'{"inventory":{"interfaces":[' + nics + b'],"cpu":{"architecture":"x86_64"}},"x":' + body + b"}"


def _long(chance: random.Random, body: bytes) -> bytes:
    size = chance.choice((1_000_000, 100_000, 100_000, 17_000_000)) if chance.random() < 0.02 else 20_000
    return body[:-1] + b',"pad":"' + b"p" * size + b'"}'


def _numbers(chance: random.Random, body: bytes) -> bytes:
    digits = chance.choice(
        (b"1" * 400, b"1" * 5000, b"1e99999", b"-1e-99999", b"00", b"0x10", b"+1", b".5", b"1.", b"1_0")
    )
    return body[:-1] + b',"number":' + digits + b"}"


_SPOILERS: Final[tuple[Spoiler, ...]] = (
    _cut, _flip, _flip, _insert, _insert, _duplicate_key, _deep, _whole, _many, _long, _numbers,
)  # fmt: skip
