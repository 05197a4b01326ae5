"""Who may read a file, and when: many at once, and after it was replaced."""

from __future__ import annotations

from ferroscope.api.http.sending import Places, Readers

_FILE = "ipa.iso"


def _take_all(places: Places, source: str) -> int:
    count = 0
    while places.take(source):
        count += 1
    return count


def test_one_slow_reader_leaves_places_for_others() -> None:
    places = Places(128)
    assert _take_all(places, "slow") == 64
    for number in range(20):
        assert places.take(f"other-{number}")


def test_several_slow_readers_leave_places_for_another() -> None:
    places = Places(128)
    assert all(_take_all(places, f"slow-{number}") for number in range(6))
    assert places.take("other")


def test_a_place_that_is_given_back_is_free_again() -> None:
    places = Places(4)
    assert _take_all(places, "one") == 2
    places.give_back("one")
    assert _take_all(places, "one") == 1
    for _ in range(2):
        places.give_back("one")
    assert _take_all(places, "other") == 2


def _reads(readers: Readers, version: str, now: float, *, source: str = "192.0.2.1", begins: bool = False) -> bool:
    return readers.may_read(source, _FILE, version, now, begins=begins)


def test_who_reads_the_old_file_does_not_get_a_part_of_the_new_one() -> None:
    readers = Readers()
    assert _reads(readers, "old", 0)
    assert _reads(readers, "old", 50)
    assert not _reads(readers, "new", 51)
    assert not _reads(readers, "new", 109)
    assert _reads(readers, "new", 51, source="192.0.2.2")


def test_who_has_paused_for_a_minute_begins_again() -> None:
    readers = Readers()
    assert _reads(readers, "old", 0)
    assert not _reads(readers, "new", 59)
    assert _reads(readers, "new", 60)
    assert not _reads(readers, "old", 61)


def test_who_begins_with_the_new_file_gets_its_parts() -> None:
    readers = Readers()
    assert _reads(readers, "old", 0)
    assert _reads(readers, "new", 1, begins=True)
    assert _reads(readers, "new", 2)


def test_sources_that_nobody_knows_are_not_told_apart() -> None:
    readers = Readers()
    assert _reads(readers, "old", 0, source="")
    assert _reads(readers, "new", 1, source="")


def test_memory_is_bounded() -> None:
    readers = Readers(remembered=2)
    for number in range(3):
        assert _reads(readers, "old", number, source=f"192.0.2.{number}")
    assert _reads(readers, "new", 3, source="192.0.2.0")
    assert not _reads(readers, "new", 3, source="192.0.2.2")
