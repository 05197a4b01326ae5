"""Brute force is bounded, and locks out nobody else of the same source."""

from __future__ import annotations

from ferroscope.api.auth.authentication import Remembered
from ferroscope.api.auth.failures import FailedLogins
from ferroscope.config.options import ApiSettings

NAT, OTHER = "192.0.2.7", "192.0.2.8"


def logins(rate: float = 1.0) -> FailedLogins:
    return FailedLogins(ApiSettings(failure_rate=rate))


def guess(limit: FailedLogins, source: str, name: str, now: float) -> bool:
    """Try a wrong password; return whether it was checked."""
    if limit.wait(source, name, now):
        return False
    limit.count_failure(source, name, now)
    return True


def test_a_name_can_be_tried_in_a_burst_and_then_at_a_rate_from_one_source() -> None:
    limit = logins()
    assert [guess(limit, NAT, "alice", 0.0) for _ in range(22)].count(True) == 20
    assert limit.wait(NAT, "alice", 0.0) == 1
    assert guess(limit, OTHER, "alice", 0.0)
    hour = sum(guess(limit, NAT, "alice", second / 10) for second in range(1, 36_000))
    assert 3590 <= hour <= 3600


def test_an_attack_on_some_names_does_not_concern_the_others_of_its_source() -> None:
    limit = logins()
    for tenth in range(6000):
        for name in ("alice", "root", "admin", "monitoring"):
            guess(limit, NAT, name, tenth / 10)
        assert limit.wait(NAT, "bob", tenth / 10) == 0
    # He may mistype it, and no more.
    assert 3 <= [guess(limit, NAT, "bob", 600.0) for _ in range(30)].count(True) <= 4


def test_names_cannot_be_multiplied() -> None:
    limit = logins()
    checked = sum(guess(limit, NAT, f"user{tenth}", tenth / 10) for tenth in range(36_000))
    assert checked <= 20 + 20 + 2 * 3600
    checked = sum(guess(limit, NAT, f"user{tenth}", 3600.0) for tenth in range(36_000, 37_000))
    assert checked <= 2
    assert limit.wait(OTHER, "bob", 3600.0) == 0


def test_the_addresses_of_one_host_and_of_one_network_are_one_source() -> None:
    for sources in (
        [f"127.{number >> 8}.{number & 255}.1" for number in range(500)],
        ["::1", "127.0.0.1", "::ffff:127.0.0.2"] * 100,
        [f"2001:db8::{number:x}" for number in range(500)],
    ):
        limit = logins()
        assert sum(guess(limit, source, "alice", 0.0) for source in sources) == 20


def test_there_is_no_limit_without_a_rate_or_a_source() -> None:
    assert all(guess(logins(rate=0.0), NAT, "alice", 0.0) for _ in range(100))
    assert all(guess(limit, "", "alice", 0.0) for limit in [logins()] for _ in range(100))


def test_digests_are_forgotten_in_the_order_in_which_they_were_seen() -> None:
    some = Remembered(2, 10.0, prolong=True)
    some.add(b"a", 0.0)
    some.add(b"b", 0.0)
    assert some.is_remembered(b"a", 9.0)
    some.add(b"c", 9.0)
    assert [some.is_remembered(digest, 18.0) for digest in (b"a", b"b", b"c")] == [True, False, True]
    assert some.is_remembered(b"a", 27.0)
    assert not some.is_remembered(b"a", 37.0)


def test_digests_that_are_not_prolonged_end_however_often_they_are_seen() -> None:
    some = Remembered(2, 10.0, prolong=False)
    some.add(b"a", 0.0)
    assert [some.is_remembered(b"a", float(second)) for second in (5, 9, 10, 11)] == [True, True, False, False]
