"""Where a BMC is: the same place in each of its spellings, and no spelling that might be another place."""

from __future__ import annotations

import ipaddress
import socket
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core import bmc_access
from ferroscope.core.model import Document
from ferroscope_client.core.bmc_place import (
    PlaceIndex,
    first_shared,
    incomplete,
    is_shared_on_purpose,
    places,
    problem,
    same_place,
)
from ferroscope_client.core.host_spelling import canonical_host, refusal_of_host, refusal_of_url, refusal_of_urls
from ferroscope_client.core.values import bmc_ip
from tests.support.rows import each

LEGACY = {
    "10.40.0.041": "10.40.0.33",
    "010.040.000.041": "8.32.0.33",
    "10.40.34": "10.40.0.34",
    "0x0a280029": "10.40.0.41",
    "0xa.40.0.0x29": "10.40.0.41",
    "170393641": "10.40.0.41",
    "0177.0.0.1": "127.0.0.1",
    "127.1": "127.0.0.1",
    "\uff11\uff10.40.0.41": "10.40.0.41",
}
"""What inet_aton makes of each."""


@each(("spelling", "read_as"), LEGACY.items())
def test_a_spelling_that_programs_read_differently_is_refused_with_what_it_would_have_meant(
    spelling: str, read_as: str
) -> None:
    assert read_as in refusal_of_host(spelling)
    for url in (f"https://{spelling}/", f"smtp://u:p@{spelling}:25", f"a=1 x=http://{spelling}:80/v1"):
        assert read_as in refusal_of_urls({"deep": [{"er": url}]})
    for info in (
        {"redfish_address": spelling},
        {"redfish_address": f"https://{spelling}:443"},
        {"x_address": spelling},
    ):
        assert read_as in problem(info)
    assert read_as in problem({"ipmi_address": spelling})
    assert read_as in problem({"deploy_iso": f"http://{spelling}/ipa.iso"})


@each(
    "url",
    [
        "http:///10.40.34/x.iso",
        "http:/10.40.34/x.iso",
        "http:10.40.34/x.iso",
        "//10.40.34/x.iso",
        "10.40.34:/x.iso",
        "http://user@/x.iso",
        "http://%31%30.40.34/x.iso",
        "http://10%2e40.0.41/x.iso",
        "http://good\\@10.40.34/x.iso",
        "http://10.40.0.41\\/x.iso",
        "http://10.40.0.41\\@good/x.iso",
    ],
)
def test_a_url_whose_host_programs_disagree_about_is_not_handed_on(url: str) -> None:
    assert refusal_of_url(url) != ""
    assert "deploy_iso" in problem({"deploy_iso": url})


@each("host", ["10.40%2e0.41", "b%6dc", "10.40.0.41\\"])
def test_a_host_that_some_programs_decode_or_end_elsewhere_is_refused(host: str) -> None:
    assert refusal_of_host(host) != ""
    for info in ({"redfish_address": f"https://{host}"}, {"redfish_address": f"http://{host}:8000"}):
        assert problem(info) != ""
    assert refusal_of_urls(f"a=1 x=http://{host}/v1") != ""


@each(
    "url",
    [
        "http://[fe80::1%25eth0]/x.iso",
        "https://u%40:p%5c@images.example:8080/a%20b.iso?c=%5c",
        "nfs://192.0.2.1/share/x.iso",
        "cifs://nas/share/x.iso",
    ],
)
def test_a_url_with_one_host_is_handed_on(url: str) -> None:
    assert refusal_of_url(url) == problem({"deploy_iso": url}) == ""


def _four(address: int) -> list[int]:
    return list(ipaddress.IPv4Address(address).packed)


_NUMBERS = st.integers(0, 2**32 - 1)


@given(_NUMBERS, st.sampled_from(["{}", "0{:o}", "0x{:x}", "00{}"]), st.integers(0, 3))
def test_every_form_of_inet_aton_is_refused(address: int, form: str, position: int) -> None:
    parts = [str(part) for part in _four(address)]
    parts[position] = form.format(int(parts[position]))
    text = ".".join(parts)
    refused = refusal_of_host(text)
    assert bool(refused) == (text != str(ipaddress.IPv4Address(address)))
    try:
        read_as = socket.inet_ntoa(socket.inet_aton(text))
    except OSError:
        return
    assert not refused or read_as in refused


@each("host", ["10.40.0.41", "fd40::10", "[fd40::10]", "fe80::1%eth0", "bmc7", "bmc.7.example", "a.7", ""])
def test_addresses_and_names_are_not_refused(host: str) -> None:
    assert refusal_of_host(host) == ""


def _spellings(address: str) -> list[Document]:
    parsed = ipaddress.ip_address(address)
    hosts = [address, parsed.exploded.upper()]
    if parsed.version == 4:
        hosts += [f"::ffff:{address}", f"::FFFF:{address}"]
    found: list[Document] = []
    for host in hosts:
        in_url = f"[{host}]" if ":" in host else host
        found += [
            {"redfish_address": host},
            {"redfish_address": f" https://{in_url}/ "},
            {"redfish_address": f"HTTPS://{in_url}:443"},
            {"redfish_address": f"https://{in_url}:0443", "redfish_system_id": ""},
            {"redfish_address": f"http://{in_url}"},
            {"redfish_address": host, "redfish_system_id": "/redfish/v1/Systems/1/"},
            {"redfish_address": host, "redfish_system_id": 1},
            {"ipmi_address": host},
            {"ipmi_address": in_url, "ipmi_port": "0x26f"},
            {"ipmi_address": host, "ipmi_port": 623},
        ]
    return found


_ADDRESSES = st.one_of(st.ip_addresses(v=4, network="192.0.2.0/24"), st.ip_addresses(v=6, network="2001:db8::/64"))


@given(_ADDRESSES, _ADDRESSES)
def test_two_spellings_are_one_place_if_and_only_if_they_are_one_bmc(
    one: ipaddress.IPv4Address | ipaddress.IPv6Address, other: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> None:
    firsts, seconds = _spellings(str(one))[::3], _spellings(str(other))[1::2]
    assert {problem(spelling) for spelling in (*firsts, *seconds)} == {""}
    for first, second in product(map(places, firsts), map(places, seconds)):
        assert (first_shared(first, second) is not None) == (one == other)
        index: PlaceIndex[str] = PlaceIndex()
        index.add("second", second)
        assert bool(list(index.owners(first))) == (one == other)


@each(
    ("one", "other", "same"),
    [
        ({"redfish_address": "https://BMC7.example."}, {"ipmi_address": "bmc7.example"}, True),
        ({"redfish_address": "b", "redfish_system_id": "1"}, {"redfish_address": "b", "redfish_system_id": "2"}, False),
        ({"redfish_address": "http://b:8001"}, {"redfish_address": "http://b:8002"}, False),
        ({"ipmi_address": "b", "ipmi_port": 6230}, {"ipmi_address": "b", "ipmi_port": 6231}, False),
        ({"ipmi_address": "b", "ipmi_port": 6230}, {"redfish_address": "b"}, True),
        ({"ipmi_address": "b", "ipmi_bridging": "single"}, {"ipmi_address": "b"}, False),
        ({"ipmi_address": "b", "ipmi_bridging": "No"}, {"ipmi_address": "b"}, True),
        ({"redfish_address": "b", "redfish_bridging": "single"}, {"redfish_address": "b"}, True),
        (
            {"redfish_address": "b", "redfish_system_id": "1"},
            {"redfish_address": "b", "redfish_system_id": "%31"},
            True,
        ),
        (
            {"redfish_address": "b", "redfish_system_id": "1"},
            {"redfish_address": "b", "redfish_system_id": "1?x"},
            True,
        ),
        (
            {"redfish_address": "b", "redfish_system_id": "1"},
            {"redfish_address": "b", "redfish_system_id": "/1/#"},
            True,
        ),
        ({"ipmi_address": "192.0.2.1", "ipmi_target_address": "0x82"}, {"ipmi_address": "0.0.0.130"}, False),
        ({"ipmi_address": "fe80::1%eth0"}, {"redfish_address": "https://[fe80::1%25eth0]"}, True),
        ({"ipmi_address": "fe80::1%eth0"}, {"ipmi_address": "fe80::1%eth1"}, False),
        ({"redfish_address": "https://localhost"}, {"redfish_address": "https://127.0.0.1"}, True),
        ({"sim_address": "127.0.0.1:7", "sim_node": "a"}, {"sim_address": "127.0.0.1:7", "sim_node": "b"}, False),
        ({"redfish_address": "https://fd40::10"}, {"redfish_address": "fd40"}, False),
    ],
)
def test_which_places_are_one(one: Document, other: Document, same: bool) -> None:
    assert (first_shared(places(one), places(other)) is not None) is same


def test_a_name_is_at_the_addresses_that_are_stored_for_it() -> None:
    (name,), (address,) = (
        places({"redfish_address": "bmc7"}, ["192.0.2.7", "bmc7"]),
        places({"ipmi_address": "192.0.2.7"}),
    )
    assert same_place(name, address)
    assert not same_place(*places({"redfish_address": "bmc7"}), address)
    # What is stored for a name says nothing of an address beside it.
    stored = places({"redfish_address": "192.0.2.8", "ipmi_address": "bmc7"}, ["192.0.2.8", "192.0.2.7"])
    assert [sorted(place.addresses) for place in stored] == [["192.0.2.8"], ["192.0.2.7"]]


@each(
    "info",
    [
        {"redfish_address": "https://"},
        {"redfish_address": "http://"},
        {"redfish_address": "https://:443"},
        {"redfish_address": "/redfish/v1"},
        {"redfish_address": "https://bmc/ilo/redfish/v1"},
        {"redfish_address": "https://bmc:0"},
        {"redfish_address": "https://bmc:65536"},
        {"redfish_address": "https://bmc:https"},
        {"redfish_address": "https://fd40::10"},
        {"redfish_address": "10.40.0.300"},
        {"redfish_address": "https://user:secret@bmc"},
        {"ipmi_address": "10.40.0.300"},
        {"ipmi_address": "bmc:623"},
        {"ipmi_address": "https://bmc"},
        {"ipmi_address": "bmc", "ipmi_port": "65536"},
        {"ipmi_address": "bmc", "ipmi_port": "https"},
    ],
)
def test_what_cannot_be_an_address_is_known_without_asking(info: Document) -> None:
    assert problem(info) != ""


@each(
    ("info", "said"),
    [
        ({"redfish_address": "n/a"}, "'n/a' is not https://HOST"),
        ({"redfish_address": "https//10.86.0.1"}, "'https//10.86.0.1' is not https://HOST"),
        ({"redfish_address": "https://bmc/ilo/redfish/v1"}, "a path (/ilo/redfish/v1)"),
        ({"ipmi_address": "::ffff:10.40.0.041"}, "has leading zeros"),
        ({"redfish_address": "[a"}, "must contain an IPv6 address"),
        ({"redfish_address": "10.40.0.41\u200b"}, "has an invisible character"),
        # https://github.com/psf/requests/issues/5775
        ({"redfish_address": "https://[fe80::1234%2537]"}, "the interface of fe80::1234 by its name"),
        # https://github.com/psf/requests/issues/6282
        ({"redfish_address": "[fe80::1%61net]:443"}, "the interface of fe80::1 by its name"),
        ({"a": {"deep": ["http://10.40.34/x"]}}, "a: deep: 10.40.34 has three parts"),
    ],
)
def test_the_reason_is_what_is_wrong_with_the_value(info: Document, said: str) -> None:
    assert said in problem(info)


def test_what_a_login_lacks_is_known_without_asking() -> None:
    assert "redfish_username" in incomplete({"redfish_address": "bmc", "redfish_password": "secret"})
    assert "redfish_address" in incomplete({"redfish_username": "admin"})
    assert "ipmi_address" in incomplete({"ipmi_password": "secret"})
    assert incomplete({"ipmi_address": "bmc", "ipmi_password": "secret"}) == ""  # the anonymous account
    assert incomplete({}) == ""


@each(("value", "on_purpose"), [(True, True), ("true", True), ("no", False), (None, False)])
def test_a_node_says_that_it_shares_its_bmc(value: object, on_purpose: bool) -> None:
    assert is_shared_on_purpose({"allow_shared_bmc": value}) is on_purpose


def test_the_index_of_addresses_has_one_spelling_of_a_name() -> None:
    assert bmc_access.literal_addresses({"redfish_address": "https://BMC7.example."}) == {
        canonical_host("bmc7.example")
    }
    assert bmc_access.literal_addresses({"ipmi_address": "192.0.2.1", "ipmi_local_address": "0x20"}) == {"192.0.2.1"}
    assert bmc_access.literal_addresses({"boot_mac_address": "52:54:00:12:34:56"}) == set()


@each(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"), (" 2001:DB8::1/64", "2001:db8::1"), ("fd00::1%eth0", "fd00::1"),
        ("0.0.0.0", None), ("::/0", None), ("255.255.255.255", None), ("224.0.0.1", None), ("ff02::1", None),
        ("169.254.3.1", None), ("fe80::1", None), ("fe80::1%eth0", None), ("240.0.0.1", None), ("127.0.0.1", None),
        ("bmc", None), (7, None), (None, None),
    ],
)  # fmt: skip
def test_what_a_machine_calls_the_address_of_its_bmc_may_be_that_of_nobody(text: object, address: str | None) -> None:
    """Placeholders, groups and links: many machines have them."""
    assert bmc_ip(text) == address
