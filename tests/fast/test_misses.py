"""Tests of many small things list all that is wrong, whatever they collect."""

from __future__ import annotations

import pytest

from tests.support import misses


def test_nothing_is_wrong_with_nothing() -> None:
    misses.none(iter(()))


def test_all_that_is_wrong_is_listed_whatever_it_is() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^3 wrong:\none\n\('two', 2\)\nNone$"):
        misses.none(iter(["one", ("two", 2), None]))
