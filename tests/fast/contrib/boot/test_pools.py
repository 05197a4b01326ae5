"""Ranges: read, divided among hosts, and refused where they would give one address twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.contrib.boot.addresses import AddressError, overlap, parse, parse_all
from tests.support.rows import each


@given(st.integers(1, 2**32 - 70000), st.integers(16, 60000), st.integers(1, 16))
def test_parts_of_hosts_are_disjoint_equal_and_within_the_range(first: int, size: int, hosts: int) -> None:
    octets = ".".join(str(first >> shift & 255) for shift in (24, 16, 8, 0))
    end = first + size - 1
    last = ".".join(str(end >> shift & 255) for shift in (24, 16, 8, 0))
    whole = parse(f"{octets}-{last}", hosts=hosts)
    parts = [whole.part(number, hosts) for number in range(hosts)]
    assert {part.size for part in parts} == {size // hosts}
    assert all(whole.first <= part.first and part.last <= whole.last for part in parts)  # type: ignore[operator]
    assert not any(overlap(one, other) for index, one in enumerate(parts) for other in parts[index + 1 :])


def test_a_range_behind_a_relay_has_its_network_and_its_router() -> None:
    found = parse("10.80.0.50 - 10.80.0.99/24@10.80.0.1", hosts=2)
    assert (str(found), found.netmask, found.router) == ("10.80.0.50-10.80.0.99", "255.255.255.0", "10.80.0.1")


def test_an_ipv6_range_has_a_prefix_of_64_bits_unless_another_one_is_named() -> None:
    assert parse("fd00::1000-fd00::ffff", hosts=3).bits == 64
    assert parse("fd00::1000-fd00::ffff/96", hosts=3).bits == 96


@each(
    ("text", "why"),
    [
        ("10.0.0.50", "invalid range '10.0.0.50'"),
        ("10.0.0.50-10.0.0.nine", "invalid range"),
        ("10.0.0.50-fd00::1", "one family"),
        ("10.0.0.50-10.0.0.49", "ascending order"),
        ("10.0.0.50-10.0.0.51", "for 3 boot hosts"),
        ("10.0.0.50-10.0.0.99/33", "from 1 to 32"),
        ("10.0.0.50-10.0.1.99/24", "not in one /24 network"),
        ("10.0.0.50-10.0.0.99@router", "the router's address"),
    ],
)
def test_a_range_that_cannot_be_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(AddressError, match=why):
        parse(text, hosts=3)


def test_ranges_that_overlap_are_refused() -> None:
    with pytest.raises(AddressError, match="overlap"):
        parse_all(["10.0.0.10-10.0.0.99", "fd00::1-fd00::99", "10.0.0.99-10.0.0.120"], hosts=1)
