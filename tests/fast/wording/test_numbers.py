"""Texts say "1 node", not "1 nodes": whoever counts something names it with ``core.values.many``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ferroscope.core.values import many
from tests import ROOT

# A plural behind a number, with an adjective or without; for units, such as bytes of a limit, a number of one is none.
_PLURAL: Final = re.compile(r" (?:(?:more|old|other|unknown|selected) )?(?!bytes|characters)[A-Za-z]{2,}[^s\W]s\b")


def wrong(source: str) -> Iterator[str]:
    """Yield the texts in which a length is followed by a plural."""
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.JoinedStr):
            for value, text in zip(one.values, one.values[1:], strict=False):
                if (
                    isinstance(value, ast.FormattedValue)
                    and any(isinstance(part, ast.Name) and part.id == "len" for part in ast.walk(value.value))
                    and not any(isinstance(part, ast.Name) and part.id == "many" for part in ast.walk(value.value))
                    and isinstance(text, ast.Constant)
                    and _PLURAL.match(str(text.value))
                ):
                    yield f"{value.lineno}: {ast.unparse(value.value)}{str(text.value)[:40]!r}"


@pytest.mark.parametrize("package", ["ferroscope", "ferroscope_sim", "ferroscope_lease"])
def test_what_is_counted_may_be_one(package: str) -> None:
    files = sorted((ROOT / "src" / package).rglob("*.py"))
    assert [f"{file}:{text}" for file in files for text in wrong(Path(file).read_text())] == []


def test_a_plural_behind_a_length_is_found() -> None:
    assert len(list(wrong("f'{len(found)} nodes, {len(x) - 5:,} more rows'"))) == 2
    assert list(wrong("f'{many(len(found), \"node\")} of {len(found)} {noun}, {name} contains nodes'")) == []


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (2000, "2,000 nodes")])
def test_a_number_with_its_noun(number: int, text: str) -> None:
    assert many(number, "node") == text
    assert many(number, "node reports", "nodes report").endswith("node reports" if number == 1 else "nodes report")
