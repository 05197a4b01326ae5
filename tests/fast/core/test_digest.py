"""When digests are due, and what they say."""

from __future__ import annotations

import pytest

from ferroscope.config.options import NotificationSettings
from ferroscope.core.digest import DAY, Digest, HardwareChange, day_of, ends, in_words, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:00", 0.0), ("07:30", 27_000.0), ("23:59", 86_340.0), ("24:00", None), ("7", None)]
)
def test_a_time_of_the_day(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_a_wrong_time_is_refused() -> None:
    with pytest.raises(ValueError, match="07:00"):
        NotificationSettings(digest_at="7 am").digest()
    assert NotificationSettings().digest() is None


@pytest.mark.parametrize("at", [0.0, 27_000.0])
def test_a_day_ends_at_its_time_and_not_before(at: float) -> None:
    end = ends(20_000, at)
    assert (day_of(end, at), day_of(end - 1, at), day_of(end + DAY - 1, at)) == (20_000, 19_999, 20_000)


def test_the_text_says_what_happened_and_how_much_is_left_out() -> None:
    changes = [HardwareChange(node="u", name=None, text="disk /dev/sdb is gone")]
    text = in_words(Digest(since="a", until="b", finished=1, failures={"timeout": 2}, changed=9, changes=changes))
    assert text.splitlines() == [
        "1 inspection finished, 2 failed.",
        "  2 failed: timeout",
        "9 inspections found other hardware:",
        "  u: disk /dev/sdb is gone",
        "  and 8 more",
    ]
