"""Which refused callers are kept: the newest, and no address has its share at the cost of others."""

from __future__ import annotations

from ferroscope.core.lookup import (
    MAX_REFUSED_CALLERS,
    REFUSED_CALLER_SECONDS,
    RefusedCaller,
    describe_caller,
    select_surplus,
)
from ferroscope_client.core.advice import MAX_REFUSED_CALLERS_OF_SOURCE, count_callers
from ferroscope_client.core.values import limit_key

NOW = 10_000_000.0


def call(source: str, number: int, *, at: float = NOW, macs: int = 1) -> RefusedCaller:
    addresses = [f"52:54:00:00:{number:02x}:{nic:02x}" for nic in range(macs)]
    return RefusedCaller(
        source=source, machine=addresses[0], macs=addresses, bmc_addresses=[], serial="S-1", reason="lookup-unknown",
        message="no node has it", called_at=at,
    )  # fmt: skip


def test_a_source_has_its_last_callers() -> None:
    calls = [call("192.0.2.66", number, at=NOW - number) for number in range(MAX_REFUSED_CALLERS_OF_SOURCE + 5)]
    assert select_surplus(calls, limit_key, NOW) == calls[MAX_REFUSED_CALLERS_OF_SOURCE:]


def test_an_ipv6_network_is_one_source() -> None:
    calls = [call(f"2001:db8::{number:x}", number) for number in range(1, MAX_REFUSED_CALLERS_OF_SOURCE + 3)]
    assert len(select_surplus(calls, limit_key, NOW)) == 2


def test_sources_with_many_callers_lose_theirs_before_others_do() -> None:
    old = [call(f"192.0.2.{number}", 0, at=NOW - 86_400.0) for number in range(4)]
    flood = [
        call(f"198.51.100.{source}", number, at=NOW - number)
        for source in range(10)
        for number in range(MAX_REFUSED_CALLERS_OF_SOURCE)
    ]
    surplus = select_surplus([*old, *flood], limit_key, NOW)
    assert len(old) + len(flood) - len(surplus) == MAX_REFUSED_CALLERS
    assert not set(map(describe_caller, old)) & set(map(describe_caller, surplus))


def test_old_calls_are_forgotten() -> None:
    calls = [call("192.0.2.1", 1), call("192.0.2.2", 2, at=NOW - REFUSED_CALLER_SECONDS - 1)]
    assert select_surplus(calls, limit_key, NOW) == calls[1:]
    assert select_surplus(calls, limit_key, NOW + 86_400.0) == calls[1:]


def test_the_description_has_addresses_serial_source_time_and_reason() -> None:
    text = describe_caller(call("192.0.2.7", 1, at=0.0, macs=6))
    for expected in (
        "52:54:00:00:01:00",
        "and 2 more",
        "S-1",
        "192.0.2.7",
        "1970-01-01 00:00:00 UTC",
        "no node has it",
    ):
        assert expected in text


def test_a_count_that_was_cut_says_so() -> None:
    assert (count_callers(0), count_callers(1), count_callers(1, 2)) == ("", "1 unknown machine", "3 unknown machines")
    limit = MAX_REFUSED_CALLERS_OF_SOURCE
    assert count_callers(limit, 1) == f"at least {limit + 1} unknown machines"
