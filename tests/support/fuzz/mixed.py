"""Requests with several oddities at once, each made from a seed and its number; most of each is as it should be.

So they get further than those with one oddity: past the checks of the path to the query, past those of the query to the
body, and to the database.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

from ferroscope.api.http.route import Body, Route
from ferroscope.api.routes import ROUTES
from tests.support.fuzz.odd import (
    ASKED,
    BODIES,
    HEADERS,
    NUMBERS,
    SEGMENTS,
    TEXTS,
    UUID,
    VALUES,
    Asked,
    fields_of,
)

_NAMES: Final = (UUID.encode(), b"odd", b"02:0d:d0:00:00:01", b"fake-hardware", b"nope", b"1")
_VERSIONS: Final = (
    b"latest",
    b"latest",
    b"latest",
    b"1.1",
    b"1.6",
    b"1.31",
    b"1.52",
    b"1.61",
    b"1.82",
    b"1.95",
    b"1.115",
)
_GOOD: Final = (
    b"true", b"false", b"1", b"10", b"1000", b"name", b"uuid", b"created_at", b"asc", b"desc", b"odd", UUID.encode(),
    b"enroll", b"manageable", b"uuid,name,extra", b"rack=r1", b"rack!=r1,spare", b"memory_gb%20%3E%201", b"1.5",
    b"2026-01-01T00:00:00Z", b"02:0d:d0:00:00:01", b"fake-hardware", b"node",
)  # fmt: skip
_FIT: Final[tuple[Any, ...]] = (
    "odd", "fake-hardware", UUID, "02:0d:d0:00:00:01", True, False, None, 0, 1, 30, 3600, "inspect", "manage", "abort",
    "power on", "power off", "rebooting", "pxe", "uefi", {}, {"a": 1}, {"rack": "r1"}, [], ["a"], "x", 1.5,
    [{"op": "eq", "args": ["{node.driver}", "x"]}], [{"op": "set-attribute", "args": ["/extra/x", "y"]}],
    {"interfaces": [{"name": "eth0", "mac_address": "02:0d:d0:00:00:01"}], "cpu": {"architecture": "x86_64"}},
    {"redfish_address": "192.0.2.1"}, {"ipmi_address": "192.0.2.1"}, {"capabilities": "boot_mode:uefi"},
)  # fmt: skip
# What fits a field of this name, which is always there if the body has it.
_SUITED: Final[dict[str, tuple[Any, ...]]] = {
    "driver": ("fake-hardware",), "node_uuid": (UUID,), "target": ("inspect", "manage", "abort", "power on", "provide"),
    "address": ("02:0d:d0:00:00:01", "02:0d:d0:00:00:02"), "holder": ("me",), "duration": (30,),
    "boot_device": ("pxe",),
    "conditions": ([], [{"op": "eq", "args": ["{node.driver}", "x"]}]),
    "actions": ([{"op": "set-attribute", "args": {"path": "/extra/x", "value": "y"}}],),
    "traits": (["CUSTOM_A"],), "interfaces": ([{"mac_address": "02:0d:d0:00:00:01"}],),
    "inventory": ({"interfaces": [{"name": "eth0", "mac_address": "02:0d:d0:00:00:01"}]},),
}  # fmt: skip
_POINTERS: Final = (
    "/extra/a", "/extra/a/b", "/extra", "/name", "/driver_info/redfish_address", "/properties/capabilities",
    "/properties/cpus", "/labels/rack", "/maintenance", "/instance_uuid", "/owner", "/address", "/pxe_enabled",
    "/local_link_connection", "/node_uuid", "/traits", "/", "", "/extra/~1~0", "/extra/-", "/uuid", "/driver",
    "/provision_state", "/\u0000", "/extra/\ud800", "/description", "/chassis_uuid", "/portgroup_uuid",
)  # fmt: skip
_OPERATIONS: Final = ("add", "replace", "remove", "test", "move", "copy", "nope", None)


def request(seed: int, number: int) -> Asked:
    """Return request ``number`` of this seed, always the same."""
    chance = random.Random(f"odd/{seed}/{number}")
    route = chance.choice(ROUTES)
    path = route.path.encode()
    while b"{" in path:
        name = path[path.index(b"{") : path.index(b"}") + 1]
        path = path.replace(name, chance.choice(SEGMENTS if chance.random() < 0.25 else _NAMES), 1)
    if query := _query(chance, route):
        path += b"?" + query
    body = b"" if route.body_kind is Body.NONE else _body(chance, route)
    head = [route.method.encode() + b" " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close"]
    head.append(ASKED + chance.choice(_VERSIONS))
    if chance.random() < 0.2:
        head.append(chance.choice(HEADERS))
    chunked = chance.random() < 0.1 and body
    if chunked:
        head.append(b"Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    elif body or route.method != "GET":
        head.append(b"Content-Length: %d" % len(body))
    if any(b"chunked" in line for line in head[4:]) and not chunked:
        body += b"0\r\n\r\n"  # otherwise the service would wait for it
    introspection = "introspection" in str(route.surface)
    return Asked(b"\r\n".join(head) + b"\r\n\r\n" + body, introspection)


def _query(chance: random.Random, route: Route) -> bytes:
    names = list(route.query.__struct_encode_fields__)
    chosen = chance.sample(names, min(len(names), chance.choice((0, 1, 1, 2, 4))))
    return b"&".join(
        name.encode() + b"=" + chance.choice(VALUES if chance.random() < 0.3 else _GOOD) for name in chosen
    )


def _body(chance: random.Random, route: Route) -> bytes:
    if chance.random() < 0.05:
        return chance.choice(BODIES)
    if route.method == "PATCH":
        operations = [_operation(chance) for _ in range(chance.choice((1, 1, 2, 5)))]
        text = b"[" + b",".join(operations) + b"]"
    else:
        names = fields_of(route) or ("inventory", "error", "interfaces", "data", "x")
        chosen = chance.sample(names, min(len(names), chance.choice((0, 1, 1, 2, 3, 6, 20))))
        chosen += [name for name in names if name in _SUITED and name not in chosen]
        text = b"{" + b",".join(json.dumps(name).encode() + b":" + _fit(chance, name) for name in chosen) + b"}"
        if chance.random() < 0.05:
            text = b"[" + text + b"]"
    if chance.random() < 0.1:
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at]
            + chance.choice((b"\xff", b"\x00", b",", b"\xed\xa0\x80", b'"', b""))
            + text[at + chance.randrange(3) :]
        )
    return text


def _operation(chance: random.Random) -> bytes:
    found = {
        "op": chance.choice(_OPERATIONS[:3] if chance.random() < 0.8 else _OPERATIONS),
        "path": chance.choice(_POINTERS),
    }
    start = json.dumps(found).encode()[:-1]
    return start + b"}" if chance.random() < 0.2 else start + b',"value":' + _value(chance) + b"}"


def _fit(chance: random.Random, name: str) -> bytes:
    if name in _SUITED and chance.random() < 0.85:
        return json.dumps(chance.choice(_SUITED[name])).encode()
    return _value(chance)


def _value(chance: random.Random, depth: int = 0) -> bytes:
    kind = chance.random()
    if kind < 0.45:
        return json.dumps(chance.choice(_FIT)).encode()
    if kind < 0.65:
        return b'"' + chance.choice(TEXTS) + b'"'
    if kind < 0.85:
        return chance.choice(NUMBERS)
    if depth > 3:
        return b"null"
    inner = [_value(chance, depth + 1) for _ in range(chance.choice((1, 2, 3)))]
    if kind < 0.92:
        return b"[" + b",".join(inner) + b"]"
    return b"{" + b",".join(b'"%s":%s' % (chance.choice((b"a", *TEXTS)), one) for one in inner) + b"}"
