"""Upgrades to the next schema that are killed at any statement, or several at once: another one completes it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import upgrades
from tests.support.upgrades import ended, forked, killed


@pytest.fixture(autouse=True)
def next_release(tmp_path: Path) -> Iterator[None]:
    with upgrades.next_release(tmp_path):
        yield


@pytest.fixture
def fresh_schema(database_url: str) -> object:
    """Return the schema that an upgrade makes which nobody has disturbed."""
    upgrades.upgrade(database_url)
    return upgrades.schema(database_url)


def killed_at_every_statement(url: str, kind: str) -> int:
    """Kill one upgrade after the other, until one ends; return how many were killed.

    MariaDB keeps each change of the schema, so each upgrade gets one statement further than the one before; only rows
    are not kept. The others undo it all, so each upgrade is killed one statement later.
    """
    after, last = 1, ""
    for number in itertools.count():
        reached = killed(url, after)
        if not reached:
            return number
        kept = kind == "mariadb" and reached != last and reached.lstrip().startswith(("ALTER", "CREATE"))
        after, last = 1 if kept else after + 1, reached
    raise AssertionError("unreachable")


def test_an_upgrade_of_an_empty_database_is_killed_at_every_statement(
    empty_database_url: str, database_kind: str, fresh_schema: object
) -> None:
    assert killed_at_every_statement(empty_database_url, database_kind) > 50
    assert upgrades.schema(empty_database_url) == fresh_schema


def test_an_upgrade_of_a_filled_database_is_killed_at_every_statement(
    empty_database_url: str, database_kind: str, fresh_schema: object
) -> None:
    before = upgrades.fill(empty_database_url)
    assert killed_at_every_statement(empty_database_url, database_kind) > 10
    assert upgrades.schema(empty_database_url) == fresh_schema
    assert upgrades.rows(empty_database_url, of=before) == before


@pytest.mark.parametrize("filled", [False, True])
def test_of_five_upgrades_at_once_all_succeed(empty_database_url: str, fresh_schema: object, *, filled: bool) -> None:
    if filled:
        upgrades.fill(empty_database_url)
    children = [forked(lambda: upgrades.upgrade(empty_database_url)) for _ in range(5)]
    assert [ended(child) for child in children] == [0] * 5
    assert upgrades.schema(empty_database_url) == fresh_schema


def test_four_upgrades_complete_what_a_killed_one_has_left(empty_database_url: str, fresh_schema: object) -> None:
    assert killed(empty_database_url, 7)
    children = [forked(lambda: upgrades.upgrade(empty_database_url)) for _ in range(4)]
    assert [ended(child) for child in children] == [0] * 4
    assert upgrades.schema(empty_database_url) == fresh_schema
