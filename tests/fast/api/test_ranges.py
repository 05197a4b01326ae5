"""Which part of a file a Range header wants, as BMCs and others send it."""

from __future__ import annotations

from ferroscope.api.http.served_files import wanted_range
from tests.support.rows import each

_WHOLE = None


@each(
    ("header", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-99", (0, 100)),
        ("bytes=10-19", (10, 10)),
        ("bytes=90-200", (90, 10)),
        ("bytes=99-", (99, 1)),
        ("bytes=-10", (90, 10)),
        ("bytes=-500", (0, 100)),
        ("Bytes = 5 - 9", (5, 5)),
        ("bytes=100-", (100, 0)),
        ("bytes=100-200", (100, 0)),
        ("bytes=-0", (100, 0)),
        ("", _WHOLE),
        ("bytes=", _WHOLE),
        ("bytes=-", _WHOLE),
        ("bytes=9-5", _WHOLE),
        ("bytes=0-1,5-6", _WHOLE),
        ("sectors=0-1", _WHOLE),
        ("bytes=0x0-0x9", _WHOLE),
        ("bytes=--5", _WHOLE),
        ("bytes=" + "9" * 30 + "-", _WHOLE),
        ("0-99", _WHOLE),
    ],
)
def test_a_range_is_the_part_that_it_names_or_is_ignored(header: str, expected: tuple[int, int] | None) -> None:
    assert wanted_range(header, 100) == expected


def test_an_empty_file_has_no_parts() -> None:
    assert wanted_range("bytes=0-0", 0) == (0, 0)
    assert wanted_range("bytes=-1", 0) == (0, 0)
    assert wanted_range("", 0) is None
