"""The page of the specifications is true: its tests exist, each row has one or a reason, and options differ as said."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Final

from ferroscope.config.sections import options as declared_options
from tests import ROOT
from tests.support import misses
from tools.docs.declarations import described
from tools.docs.specifications import DIRECTORY, DOCUMENTS, Row, document, options

# Those that are not on the page as different; "more than 0" is a limit near it.
AS_DOCUMENTED: Final = {
    ("worker", "get_timeout"): ("number, 0.01 or more", "`3.0`"),
    ("worker", "reboot_throttle"): ("number, 0 or more", "`0.0`"),
    ("inspector", "retention_period"): ("number, 0 or more", "`30.0`"),
    ("inspector", "keep_ports"): ("one of `all`, `present`, `added`", "`all`"),
    ("inspector", "disk_partitioning_spacing"): ("integer, 0 or more", "`1`"),
    ("auto_discovery", "enabled"): ("true or false", "`false`"),
    ("pxe_filter", "sync_period"): ("number, 0 to 30", "`15.0`"),
}


def rows() -> Iterator[Row]:
    for name in DOCUMENTS:
        yield from document(name).rows


@cache
def functions_of(file: str) -> frozenset[str]:
    path = ROOT / "tests" / file
    if not path.is_file():
        return frozenset()
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(one.name for one in found if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_exists() -> None:
    misses.none(
        f"{row.name}: no {shown}" for row in rows() for shown in row.tests if shown.name not in functions_of(shown.file)
    )


def test_every_row_has_a_test_or_a_reason() -> None:
    misses.none(f"{row.name}: neither a test nor a reason" for row in rows() if not (row.tests or row.reason))


def test_every_document_is_on_the_page() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.txt")} == {*DOCUMENTS, "options"}


def test_every_option_exists_and_its_row_gives_the_reason() -> None:
    known = {(section, option.name) for section, declared in declared_options().items() for option in declared}
    reasons = {row.name: row.reason for row in rows()}
    misses.none(
        f"[{one.section}] {one.name}: {wrong}"
        for one in options()
        for wrong, is_wrong in {
            "no such option": (one.section, one.name) not in known,
            f"row {one.row} has no reason": not reasons.get(one.row),
        }.items()
        if is_wrong
    )


def test_options_of_the_documents_have_their_limits_and_defaults() -> None:
    declared = {(section, option.name): option for section, known in declared_options().items() for option in known}
    assert {place: described(declared[place]) for place in AS_DOCUMENTED} == AS_DOCUMENTED
