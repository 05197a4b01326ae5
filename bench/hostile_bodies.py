"""The worst bodies that are known, and generated ones: each is made for the MAC address of a machine."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from typing import Final

BODY_BYTES: Final = 2 * 1024 * 1024
UNKNOWN_MAC: Final = "52:54:00:ff:ff:ff"

_VALUES: Final = (
    *(b"1e308", b"5e-324", b"2.2250738585072011e-308", b"1e999", b"NaN", b"-Infinity", b"-0.0", b"9" * 4000),
    *(b'""', b'"\\ud800"', b'"\\u0000\\""', b'"\xff\x01"', b"[]", b"{}", b"[" * 20 + b"]" * 20, b'{"a":1e308,"":[]}'),
)
_PIECES: Final = (
    b'\\"',
    b"\\\\",
    b"\\ud800",
    b"\\u0041",
    b"\xff",
    b"\x01",
    b"\x7f",
    b"\xc3\xa9",
    b"a",
    b"[,{",
    b"1e308,",
)
Body = Callable[[str], bytes]


def callback_of(mac: str, members: bytes, inventory: bytes = b"") -> bytes:
    """Return a callback; ``members`` and ``inventory``: more members, each with a comma before it."""
    return b'{"inventory":{"interfaces":[{"mac_address":"%s"}]%s}%s}' % (mac.encode(), inventory, members)


def repeated(unit: bytes, most: int = BODY_BYTES, octets: int = BODY_BYTES - 500) -> bytes:
    """Return ``unit`` with commas, as often as it fits into ``octets``, but at most so often."""
    return b",".join([unit] * min(most, octets // (len(unit) + 1)))


def array(unit: bytes, most: int = BODY_BYTES) -> Body:
    return lambda mac: callback_of(mac, b',"x":[' + repeated(unit, most) + b"]")


def _text(piece: bytes, end: bytes = b'"') -> Body:
    """Return a callback with one long text, which is open if ``end`` is empty."""
    return lambda mac: callback_of(mac, b',"x":"' + piece * ((BODY_BYTES - 500) // len(piece)) + end)


def _keys(value: bytes, count: int) -> Body:
    return lambda mac: callback_of(mac, b"".join(b',"%07d":%s' % (number, value) for number in range(count)))


def _nics(mac: str) -> bytes:
    tlvs = repeated(b'[5,"%s"]' % (b"41" * 200), 8)
    nics = b",".join(
        b'{"name":"eth%d","mac_address":"52:54:00:01:%02x:%02x","lldp":[%s]}' % (one, one >> 8, one & 255, tlvs)
        for one in range(511)
    )
    return b'{"inventory":{"interfaces":[{"mac_address":"%s"},%s]}}' % (mac.encode(), nics)


def _log(mac: str) -> bytes:
    return callback_of(mac, b',"logs":"%s"' % base64.b64encode(random.Random(0).randbytes(1_550_000)))


def known() -> Iterator[tuple[str, Body]]:
    """Yield the known worst shapes: those of the reviews, and values just below each limit."""
    for value in _VALUES:
        yield f"array of {value[:24].decode(errors='backslashreplace')}", array(value)
        most = 49_000 if value[-1:] in b"]}NyI9f" else 199_000
        yield f"{most} of the same", array(value, most)
    for digits in (17, 40, 700):
        yield f"numbers of {digits} digits", array(b"1." + b"7" * digits + b"e300", 199_000)
    for piece in _PIECES:
        yield f"text of {piece.decode(errors='backslashreplace')}", _text(piece)
        yield f"open text of {piece.decode(errors='backslashreplace')}", _text(piece, b"")
    yield "50,000 NaN and long texts", array(b'NaN,"%s"' % (b"\\u0001" * 11), 24_900)
    yield (
        "a name of 1 MB above 190,000 values",
        lambda mac: callback_of(mac, b',"%s":[%s,"\x01"]' % (b"k" * 1_000_000, repeated(b"0", 190_000))),
    )
    yield "200,000 keys", _keys(b"0", 170_000)
    yield "49,000 objects of 1e308", array(b'{"a":1e308,"b":5e-324,"c":""}', 49_000)
    yield (
        "49,000 records of extra hardware",
        lambda mac: callback_of(mac, b',"data":[' + repeated(b'["disk","sd1","size","1234567"]', 48_900) + b"]"),
    )
    yield (
        "15,000 disks",
        lambda mac: callback_of(
            mac,
            b"",
            b',"disks":[' + repeated(b'{"name":"/dev/sda","size":1e308,"serial":"S","wwn":"0x1"}', 15_000) + b"]",
        ),
    )
    yield (
        "40,000 PCI devices",
        lambda mac: callback_of(
            mac, b',"pci_devices":[' + repeated(b'{"vendor_id":"8086","product_id":"1563"}', 40_000) + b"]"
        ),
    )
    yield (
        "a BMC address of 199,000 numbers",
        lambda mac: callback_of(mac, b"", b',"bmc_address":[' + repeated(b"1.7777e308", 190_000) + b"]"),
    )
    yield "512 NICs with LLDP", _nics
    yield "a log of 1.5 MB", _log


def generated(seed: int) -> Body:
    """Return a random mixture of the worst values, often just below a limit, and sometimes broken."""
    chance = random.Random(seed)

    def value(depth: int = 0) -> bytes:
        kind = chance.randrange(5 if depth < 3 else 3)
        if kind == 0:
            return chance.choice(_VALUES)
        if kind == 1:
            digits = "".join(chance.choices("0123456789", k=chance.choice((1, 9, 19, 100, 800))))
            return f"{chance.randrange(1, 10)}.{digits}e{chance.randrange(-330, 310)}".encode()
        if kind == 2:
            return b'"' + chance.choice(_PIECES) * chance.choice((1, 4, 30, 500)) + b'"'
        inner = [value(depth + 1) for _ in range(chance.randrange(1, 5))]
        if kind == 3:
            return b"[" + b",".join(inner) + b"]"
        return b"{" + b",".join(b'"%d":%s' % pair for pair in enumerate(inner)) + b"}"

    unit = b",".join(value() for _ in range(chance.choice((1, 2, 10, 60))))
    values = unit.count(b",") + 1
    most = chance.choice((49_990, 199_990, BODY_BYTES)) // max(values, 4 * (unit.count(b"[") + unit.count(b"{")))
    content = repeated(unit, max(1, most))
    rest = (BODY_BYTES - 1000 - len(content)) * chance.randrange(2)
    piece, piece_of_name = chance.choice(_PIECES), chance.choice((b"x", b"\x01", b"\xc3\xa9"))
    name = piece_of_name * (chance.choice((1, 1, 100, 100_000)) if rest else 1)
    name = name[: max(1, rest)]
    rest = max(0, rest - len(name))
    members = b',"' + name + b'":[' + content + b'],"y":"' + piece * (rest // len(piece)) + b'"'
    broken = chance.randrange(8)
    if broken == 0:
        members = members[: chance.randrange(len(members))]
    if broken == 1:
        at = chance.randrange(len(members))
        members = members[:at] + chance.choice((b"\xff", b"\x01", b'"', b"\\", b"]")) + members[at:]
    return lambda mac: callback_of(mac, members)
