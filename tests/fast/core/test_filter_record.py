"""What a PXE filter lets pass: MACs as numbers, changes that come late, the record of an open filter."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core.boot_macs import (
    HORIZON_SECONDS,
    ChangeWindow,
    FilterRecord,
    MacChange,
    decode_record,
    number,
    spell_mac,
)
from tests.support.rows import each


def taken(window: ChangeWindow, *numbers: int, now: float = 0.0) -> set[str]:
    return window.take([MacChange(seq, f"mac-{seq}") for seq in numbers], now)


def test_numbers_that_are_left_out_are_expected_until_they_are_too_old() -> None:
    window = ChangeWindow(10)
    assert taken(window, 11, 14) == {"mac-11", "mac-14"}
    assert (window.low, window.high, window.missing) == (11, 14, (12, 13))
    assert taken(window, 13, 14, now=1.0) == {"mac-13"}, "what was seen before is not new"
    assert (window.low, window.missing) == (11, (12,))
    assert taken(window, now=HORIZON_SECONDS + 1) == set()
    assert (window.low, window.missing) == (14, ())


def test_a_gap_without_end_takes_no_memory_without_end() -> None:
    window = ChangeWindow()
    assert taken(window, 10**12) == {f"mac-{10**12}"}
    assert len(window.missing) == 10_000


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60, unique=True), st.data())
def test_whatever_the_order_of_commits_each_change_is_reported_once(order: list[int], data: st.DataObject) -> None:
    window, committed, told = ChangeWindow(), set[int](), list[str]()
    for seq in order:
        committed.add(seq)
        if data.draw(st.booleans()):
            told += taken(window, *sorted(one for one in committed if one > window.low))
    told += taken(window, *sorted(one for one in committed if one > window.low))
    assert sorted(told) == sorted(f"mac-{seq}" for seq in order)


def test_a_pxe_filter_has_applied_what_it_has_seen_and_only_while_it_is_open() -> None:
    record = FilterRecord(open=True, applied=9, missing=(7,))
    assert [seq for seq in range(5, 12) if record.has_applied(seq)] == [5, 6, 8, 9]
    assert not msgspec.structs.replace(record, open=False).has_applied(5)


@each("data", ["", "no json", "[1]", '{"applied": "x"}', '{"applied": -'])
def test_a_lease_that_tells_something_else_is_no_open_pxe_filter(data: str) -> None:
    assert decode_record(data) == FilterRecord()


def test_a_mac_is_a_number_in_each_of_its_spellings() -> None:
    for text in ("52:54:00:AB:cd:01", "52-54-00-ab-CD-01", "01-52-54-00-ab-cd-01"):
        assert number(text) == 0x525400ABCD01
    assert [number(text) for text in ("", "52:54:00:ab:cd", "zz:54:00:ab:cd:01", "52540 0abcd01")] == [None] * 4
    assert spell_mac(0x025400ABCD01) == "02:54:00:ab:cd:01"
