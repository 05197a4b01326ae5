"""Cases of LLDP, with what switches send and with what nobody should. Frames are written as ``type:value``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.corpus import Case
from tests.corpus.machines import body, lldp, many, nic

# name -> what it is, and the TLVs
_FRAMES = {
    "bad-hex": (
        "values that are not hexadecimal",
        "1:0452540000dd01 2:0545746831 4:zz 5:abc 6:6163",
    ),
    "short": (
        "values that are cut off",
        "1:04aabb 2:05 7:0014 8:0501c6 127:0080 127:0080c201 5:6c656166",
    ),
    "unknown-chassis": (
        "a chassis subtype that nobody knows",
        "1:09616263 2:0545746831",
    ),
    "unknown-port": (
        "a port subtype that nobody knows",
        "1:0452540000dd01 2:09616263 5:6c656166",
    ),
    "texts": (
        "identifiers that are texts",
        "1:0772616b31 2:0767652d302f302f31 4: 6:c3a4",
    ),
    "not-utf-8": (
        "texts that are not UTF-8",
        "1:0452540000dd01 4:ff 6:fffe 2:0545746831",
    ),
    "name-not-utf-8": (
        "a system name that is not UTF-8",
        "1:0452540000dd01 5:ff 2:0545746831",
    ),
    "addresses": (
        "identifiers that are addresses",
        "1:0501c0000201 2:040220010db8000000000000000000000001 "
        "8:110220010db800000000000000000000000202000000010000 8:0706525400dd0001 8:02630102",
    ),
    "vlans": (
        "VLANs of all kinds, before the chassis",
        "127:0080c2010064 127:0080c202060065 127:0080c202060066 127:0080c20300640770726976617465 "
        "127:0080c20300c80361 127:0080c20300c8046162630000 127:0080c20402888e 127:0080c2060001 "
        "127:0080c20703000000ff 1:0452540000dd01",
    ),
    "link": (
        "the link's own TLVs",
        "1:0452540000dd01 127:00120f01036c010010 127:00120f0303000000ff 127:00120f0405ee 127:00120f010340000010",
    ),
    "mau": (
        "a MAU type of these days",
        "1:0452540000dd01 127:00120f01030000008d",
    ),
    "twice": (
        "values that come twice",
        "1:0452540000dd01 1:0452540000dd02 5:61 5:62 2:0561 2:0562",
    ),
    "odd-types": (
        "types that nobody knows, and the end",
        "9:00 126:ff 3:0078 0: 1:0452540000dd01",
    ),
    "loopback-address": (
        "an IPv6 address with a small number",
        "1:0452540000dd01 8:110200000000000000000000000000000001",
    ),
    "empty": (
        "nothing",
        "",
    ),
    "vlans-after": (
        "VLANs of all kinds, after the chassis",
        "1:0452540000dd01 127:0080c2010064 127:0080c202060065 127:0080c202060066 "
        "127:0080c20300640770726976617465 127:0080c20300c80361 127:0080c20300c8046162630000 "
        "127:0080c20402888e 127:0080c2060001 127:0080c20703000000ff",
    ),
    "fdx": (
        "a link that advertises 10BASE-T full duplex alone, and a MAU type",
        "1:0452540000dd01 127:00120f01032000000b",
    ),
    "long": ("a value that is longer than any can be", f"1:0452540000dd01 6:{'61' * 512}"),
}


def cases() -> Iterator[Case]:
    """Return the cases, without what is expected of them."""
    yield _case("complete", "all that a switch tells", lldp())
    for name, (about, text) in _FRAMES.items():
        yield _case(name, about, _frame(text))
    yield _case("no-pairs", "records that are no TLVs", [1, [2], ["1", "00"], [1, None], *_frame("1:0452540000dd01")])
    yield _case("no-list", "a record that is no list", "0452540000dd01")
    yield Case(
        name="lldp-collected",
        about="LLDP of the collector is preferred to that of the inventory",
        options={"add_ports": "all"},
        body=body(
            {"interfaces": [nic(0, lldp=lldp(switch="old")), nic(1, lldp=lldp(port="Ethernet8"))]},
            lldp_raw={"eth0": lldp(switch="new"), "eth1": []},
        ),
    )
    yield Case(
        name="lldp-far-behind",
        about="100 interfaces, of which the last alone has LLDP",
        body=body({"interfaces": [nic(0), *many(99)[1:], nic(1, name="last", lldp=lldp())]}),
    )


def _case(name: str, about: str, record: Any) -> Case:
    return Case(name=f"lldp-{name}", about=f"LLDP: {about}", body=body({"interfaces": [nic(0, lldp=record), nic(1)]}))


def _frame(text: str) -> list[list[Any]]:
    return [[int(kind), value] for kind, _colon, value in (item.partition(":") for item in text.split())]
