"""Odd inventories: what firmware, ramdisks and their authors have got wrong, done to inventories of real shapes.

One function for each kind. Machine ``number`` of a seed is always the same, and so can be made again. The MAC of the
boot NIC stays somewhere in it: a machine that says nothing of itself is nobody's.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from tests.corpus import DIRECTORY
from tests.support.fuzz.mutate import nested

Document = dict[str, Any]
OfDocument = Callable[[random.Random, Document], None]
OfBytes = Callable[[random.Random, bytes], bytes]

# Cases of the corpus whose shapes differ: servers of several vendors, a virtual machine, other architectures.
_BASES: Final = ("server-0", "server-1", "server-2", "server-3", "server-5", "vm", "arm")
_HUGE: Final = (10**400, -(10**30), 2**64, 2**63, -(2**63) - 1, 1e308, 5e-324, float("nan"), float("inf"), -0.0)
_MACS: Final = (
    None, "", " ", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "N/A", 7, [], "02:0D", "52-54-00-AB-CD-EF",
    "80:00:02:08:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:50:5c:00", "01:80:c2:00:00:0e", "525400abcdef",
)  # fmt: skip
_ADDRESSES: Final = (
    None, "", "0.0.0.0", "::/0", "N/A", "fe80::1%eth0", "192.0.2.300", "192.0.2.1/24", "bmc.example.com", [], {}, 7,
    "::ffff:192.0.2.1", "localhost", "192.0.2.1 ", "\x00", "١٩٢.0.2.1",
)  # fmt: skip
_LLDP: Final = (
    [[1, "zz"]], [[5]], [[1, None]], "nonsense", [[127, "0012bb01" * 90]], [[9999, "00"]], [[-1, "00"]], [None], {},
    [[1, "04112233aabbcc"], [2, "07373334"], [0, ""], [5, "ff" * 300]], [[127, "0080c203" + "00" * 3]], [["1", "04"]],
)  # fmt: skip
_UNICODE: Final = (
    "\u202eABC",
    "e\u0301",
    "\U0001f980" * 40,
    "\ufeffR740",
    "\u2028",
    "\ufffe",
    "日本語 サーバ",
    "\u00ad",
)
_UNLIKE: Final = (None, True, 0, -1, 1.5, "", "x", "16 GB", [], {}, [[]], {"": None}, ["a", 7, None])


class Inventory(msgspec.Struct, frozen=True):
    """What machine ``number`` sends; ``kind``: what is wrong with it."""

    number: int
    kind: str
    mac: str
    body: bytes


def inventories(count: int, seed: int) -> Iterator[Inventory]:
    """Yield so many of them, of all kinds in turn."""
    bases = corpus()
    for number in range(count):
        yield make(number, seed, bases)


def make(number: int, seed: int, bases: Sequence[Document]) -> Inventory:
    chance = random.Random(f"inventory/{seed}/{number}")
    kind = number % KINDS
    mac = f"02:0d:{seed % 256:02x}:{number >> 8 & 255:02x}:{number & 255:02x}:00"
    document = _as_machine(chance.choice(bases), mac, number)
    change: OfDocument | OfBytes
    if kind < len(_OF_DOCUMENTS):
        change = _OF_DOCUMENTS[kind]
        change(chance, document)
        body = _encode(document)
    else:
        change = _OF_BYTES[kind - len(_OF_DOCUMENTS)]
        body = change(chance, _encode(document))
    return Inventory(number=number, kind=change.__name__[1:], mac=mac, body=body)


def corpus() -> list[Document]:
    return [json.loads((DIRECTORY / f"{name}.json").read_text())["body"] for name in _BASES]


def _as_machine(base: Document, mac: str, number: int) -> Document:
    """Return a copy whose MACs and serial number no other machine has; that of the first NIC is ``mac``."""
    text = json.dumps(base)
    known = [nic["mac_address"] for nic in base["inventory"]["interfaces"] if isinstance(nic.get("mac_address"), str)]
    for index, old in enumerate(dict.fromkeys(known)):
        new = mac[:-2] + f"{index:02x}"
        text = re.sub(re.escape(old).replace(":", "[:-]"), new, text, flags=re.IGNORECASE)
    document: Document = json.loads(text)
    inventory = document["inventory"]
    if isinstance(inventory.get("system_vendor"), dict):
        inventory["system_vendor"]["serial_number"] = f"SN{number}"
    document["boot_interface"] = "01-" + mac.replace(":", "-")
    return document


def _encode(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _leaves(document: Any, kind: type | tuple[type, ...] = object) -> list[tuple[Any, Any]]:
    """Return where values of this type are, but for the MAC of the boot NIC: container and key."""
    found = []
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        if isinstance(value, dict | list):
            found += _leaves(value, kind)
        elif isinstance(value, kind) and key not in ("mac_address", "boot_interface", "pxe_interface"):
            found.append((document, key))
    return found


def _some(chance: random.Random, places: list[tuple[Any, Any]], most: int = 8) -> list[tuple[Any, Any]]:
    return chance.sample(places, min(len(places), chance.randint(1, most)))


def _texts(chance: random.Random, document: Document, odd: Callable[[str], str]) -> None:
    for where, key in _some(chance, _leaves(document, str)):
        where[key] = odd(where[key])


def _in_text(chance: random.Random, text: str, odd: str) -> str:
    at = chance.choice((0, len(text), chance.randint(0, len(text))))
    return text[:at] + odd + text[at:]


def _nul(chance: random.Random, document: Document) -> None:
    _texts(chance, document, lambda text: _in_text(chance, text, "\x00" * chance.choice((1, 2, 32))))


def _control(chance: random.Random, document: Document) -> None:
    _texts(
        chance,
        document,
        lambda text: _in_text(chance, text, chance.choice(("\x1b[31m", "\x07", "\x7f", "\x85", "\r\n"))),
    )


def _surrogates(chance: random.Random, document: Document) -> None:
    odd = ("\ud800", "\udfff", "\udc00\ud800", "\udcae")
    _texts(chance, document, lambda text: _in_text(chance, text, chance.choice(odd)))


def _unicode(chance: random.Random, document: Document) -> None:
    _texts(chance, document, lambda text: _in_text(chance, text, chance.choice(_UNICODE)))


def _empty_texts(chance: random.Random, document: Document) -> None:
    _texts(
        chance,
        document,
        lambda _text: chance.choice(("", " ", "\t", "None", "Not Specified", "To be filled by O.E.M.")),
    )


def _long_texts(chance: random.Random, document: Document) -> None:
    _texts(chance, document, lambda text: text + "a" * chance.choice((256, 5000, 70_000)))


def _null(chance: random.Random, document: Document) -> None:
    for where, key in _some(chance, _leaves(document)):
        where[key] = None


def _missing(chance: random.Random, document: Document) -> None:
    for where, key in _some(chance, [place for place in _leaves(document) if isinstance(place[0], dict)]):
        where.pop(key, None)


def _types(chance: random.Random, document: Document) -> None:
    for where, key in _some(chance, _leaves(document)):
        where[key] = copy.deepcopy(chance.choice(_UNLIKE))


def _numbers(chance: random.Random, document: Document) -> None:
    for where, key in _some(chance, _leaves(document, (int, float))):
        where[key] = chance.choice(_HUGE)


def _numbers_as_texts(chance: random.Random, document: Document) -> None:
    for where, key in _some(chance, _leaves(document, (int, float))):
        where[key] = chance.choice((str(where[key]), f"{where[key]} MB", "0x10", "1e3", "-1", "many"))


def _section_types(chance: random.Random, document: Document) -> None:
    inventory = document["inventory"]
    for name in chance.sample([name for name in inventory if name != "interfaces"], 3):
        inventory[name] = copy.deepcopy(chance.choice(_UNLIKE))


def _sections_missing(chance: random.Random, document: Document) -> None:
    inventory = document["inventory"]
    for name in chance.sample(list(inventory), 3):
        if name != "interfaces" or chance.random() < 0.3:
            del inventory[name]


def _interfaces(chance: random.Random, document: Document) -> None:
    document["inventory"]["interfaces"] = copy.deepcopy(chance.choice((None, [], {}, "eth0", [None], [[]], [{}], 7)))


def _nics_without_mac(chance: random.Random, document: Document) -> None:
    nics = document["inventory"]["interfaces"]
    for number in range(chance.randint(1, 4)):
        nic = {**nics[0], "name": f"odd{number}", "mac_address": chance.choice(_MACS)}
        if chance.random() < 0.3:
            del nic["mac_address"]
        nics.insert(chance.choice((0, len(nics))), nic)


def _duplicates(chance: random.Random, document: Document) -> None:
    inventory = document["inventory"]
    for name in ("interfaces", "disks"):
        if isinstance(inventory.get(name), list) and inventory[name]:
            inventory[name] += [copy.deepcopy(chance.choice(inventory[name])) for _ in range(chance.randint(1, 5))]
    inventory["interfaces"].append({**inventory["interfaces"][0], "name": "twin"})


def _many(chance: random.Random, document: Document) -> None:
    inventory, count = document["inventory"], chance.choice((130, 511, 513, 2000))
    start = "02:0e:" + inventory["interfaces"][0]["mac_address"][9:14]
    inventory["interfaces"] += [
        {"name": f"vf{n}", "mac_address": f"{start}:{n >> 8:02x}:{n & 255:02x}", "lldp": None} for n in range(count)
    ]


def _lldp(chance: random.Random, document: Document) -> None:
    for nic in document["inventory"]["interfaces"]:
        nic["lldp"] = copy.deepcopy(chance.choice(_LLDP))
    document["lldp_raw"] = chance.choice((None, {}, [], {"eth0": copy.deepcopy(chance.choice(_LLDP))}, "x"))


def _addresses(chance: random.Random, document: Document) -> None:
    inventory = document["inventory"]
    for name in ("bmc_address", "bmc_v6address", "bmc_mac"):
        inventory[name] = copy.deepcopy(chance.choice(_ADDRESSES))
    for nic in inventory["interfaces"]:
        nic["ipv4_address"] = copy.deepcopy(chance.choice(_ADDRESSES))
        nic["ipv6_address"] = copy.deepcopy(chance.choice(_ADDRESSES))


def _deep(chance: random.Random, document: Document) -> None:
    where = chance.choice((document, document["inventory"], document["inventory"]["interfaces"][0]))
    where["deep"] = nested(chance.choice((5, 18, 24, 60, 200)))


def _unknown_keys(chance: random.Random, document: Document) -> None:
    for where in (document, document["inventory"], document["inventory"]["interfaces"][0]):
        for _ in range(chance.randint(1, 20)):
            key = chance.choice(
                ("", " ", "\x00", "é" * 300, "__class__", "uuid", "a/b", "k" * 5000, f"x{chance.random()}")
            )
            where[key] = copy.deepcopy(chance.choice((*_UNLIKE, *_UNICODE)))


def _collected(chance: random.Random, document: Document) -> None:
    """Data of other collectors than the inventory's."""
    document["data"] = chance.choice(([["cpu", "logical", "number", 8], ["x"], None, [1, 2, 3, 4]], {}, "x", [7]))
    document["pci_devices"] = chance.choice(
        ([{"vendor_id": None}, {}, 7], {}, "x", [{"vendor_id": "8086", "product_id": 7}])
    )
    document["numa_topology"] = copy.deepcopy(chance.choice(_UNLIKE))
    document["logs"] = chance.choice(("not base64 \x00", "", 7, None, "QUJD" * 5000))
    document["root_disk"] = copy.deepcopy(chance.choice(_UNLIKE))
    document["error"] = chance.choice((None, "", "  ", "disk \x00 failed", ["a"], {"a": 1}))


def _bytes(chance: random.Random, body: bytes, *odd: bytes) -> bytes:
    """Put some of these bytes into texts: after the colon and the quote that begin a value."""
    starts = [
        found.end()
        for found in re.finditer(rb'": "', body)
        if b"mac_address" not in body[found.start() - 12 : found.end()]
    ]
    for at in sorted(chance.sample(starts, min(len(starts), 5)), reverse=True):
        body = body[:at] + chance.choice(odd) + body[at:]
    return body


def _bytes_latin1(chance: random.Random, body: bytes) -> bytes:
    return _bytes(chance, body, b"Intel\xae", b"\xa9", b"\xb0C", b"M\xfcller")


def _bytes_broken(chance: random.Random, body: bytes) -> bytes:
    return _bytes(chance, body, b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x92", b"\xff\xfe", b"\xc0\x80")


def _bytes_raw_controls(chance: random.Random, body: bytes) -> bytes:
    return _bytes(chance, body, b"\x00", b"\n", b"\t", b"\x1b", b"\x01\x02")


def _bytes_numbers(chance: random.Random, body: bytes) -> bytes:
    numbers = [found.span(1) for found in re.finditer(rb'": (\d+)[,}\]]', body)]
    for start, end in sorted(chance.sample(numbers, min(len(numbers), 3)), reverse=True):
        odd = chance.choice(
            (b"1e999", b"-1e999", b"9" * 5000, b"0.1e-400", b"007", b"+1", b"1.", b"0x10", b"NaN", b"-Infinity")
        )
        body = body[:start] + odd + body[end:]
    return body


def _bytes_duplicate_keys(chance: random.Random, body: bytes) -> bytes:
    return chance.choice((
        b'{"inventory":{},' + body[1:],
        body[:-1] + b',"error":null,"error":null}',
        body.replace(b'"disks"', b'"disks":7,"disks"', 1),
        body.replace(b'"mac_address"', b'"mac_address":null,"mac_address"'),
    ))  # fmt: skip


def _bytes_around(chance: random.Random, body: bytes) -> bytes:
    before, after = chance.choice(
        ((b"\xef\xbb\xbf", b""), (b"\n \t", b"\r\n"), (b"", b"\x00"), (b"", b"{}"), (b"", b"\n\n"))
    )
    return before + body + after


def _bytes_cut(chance: random.Random, body: bytes) -> bytes:
    """The connection broke, or the ramdisk's disk was full; the boot NIC was before that."""
    least = body.index(b'"mac_address"') + 40
    return body[: chance.randint(least, len(body) - 1)]


_OF_DOCUMENTS: Final[tuple[OfDocument, ...]] = (
    _nul, _control, _surrogates, _unicode, _empty_texts, _long_texts, _null, _missing, _types, _numbers,
    _numbers_as_texts, _section_types, _sections_missing, _interfaces, _nics_without_mac, _duplicates, _many, _lldp,
    _addresses, _deep, _unknown_keys, _collected,
)  # fmt: skip
_OF_BYTES: Final[tuple[OfBytes, ...]] = (
    _bytes_latin1, _bytes_broken, _bytes_raw_controls, _bytes_numbers, _bytes_duplicate_keys, _bytes_around, _bytes_cut,
)  # fmt: skip
KINDS: Final = len(_OF_DOCUMENTS) + len(_OF_BYTES)
