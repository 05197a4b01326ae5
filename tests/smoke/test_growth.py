"""No text of others costs more than in proportion to its length, whoever reads it: an expression, or a function.

What is measured is found in the source, so that new code without a measurement fails. What grows is mended at its root:
an expression by another one, a possessive repetition or a look behind that begins only once, or by a method of ``str``.
"""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import Final

import pytest

from tests import ROOT
from tests.support.growth import counting, expressions, readers
from tests.support.growth.expressions import Expression
from tests.support.growth.shapes import make_shapes

_PLANTED: Final = {"planted", "planted.expression"}
# Expressions that are built while the service runs, with the reason.
_BUILT: Final = {
    "ferroscope.contrib.ramdisk.sources.lacks.match": "of three names of fields, for apt's own files",
    "ferroscope_client.core.mac_addresses.__init__.self._match": "of an option that accepts MACs with wildcards only",
    "ferroscope.rules.patterns._SAME_I": "of single letters",
}


@pytest.fixture(scope="module", name="found")
def _found() -> tuple[list[Expression], list[str]]:
    return expressions.find(*(ROOT / package for package in readers.PACKAGES))


@pytest.mark.timeout(1200)
def test_nothing_costs_more_than_in_proportion_to_the_length_of_the_text(
    tmp_path: Path, found: tuple[list[Expression], list[str]]
) -> None:
    assert len(found[0]) > 150
    planted = Expression("planted.expression", re.compile(r"a+b"), {"search"})
    shapes = [(expression, make_shapes(expression.pattern)) for expression in (planted, *found[0])]
    (tmp_path / "expressions").write_bytes(pickle.dumps(shapes))
    lines = counting.run(tmp_path)
    grows = dict(line.removeprefix("GROWS ").split("\t") for line in lines if line.startswith("GROWS "))
    assert grows.keys() >= _PLANTED, "the test does not find what it is for"
    assert {place: grows[place] for place in grows.keys() - _PLANTED} == {}


def test_each_expression_is_known_before_the_service_runs(found: tuple[list[Expression], list[str]]) -> None:
    assert sorted(found[1]) == sorted(_BUILT), "make it a constant of its module, or give the reason"


def test_each_module_that_reads_a_text_is_measured() -> None:
    measured = {place.partition(":")[0] for place in readers.READERS}
    found = set(readers.find_readers(ROOT))
    unknown = found - measured - readers.NOT_MEASURED.keys()
    assert unknown == set(), "add its function to READERS, or the reason to NOT_MEASURED"
    assert readers.NOT_MEASURED.keys() <= found - measured, "what is no longer there needs no exception"


def test_planted_expressions_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_package").mkdir()
    (tmp_path / "planted_package" / "__init__.py").write_text(
        "import re\n"
        "_MODULE = re.compile('a')\n"
        "_LIST = [(re.compile('b'), 1)]\n"
        "class Class:\n"
        "    own = re.compile('c')\n"
        "def act(text):\n"
        "    _MODULE.match(text)\n"
        "    re.sub('d', '', text)\n"
        "    re.compile(text + '+')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found, built = expressions.find(tmp_path / "planted_package")
    assert {one.pattern.pattern: one.ways for one in found if one.pattern.pattern in "ad"} == {
        "a": {"match"},
        "d": {"finditer"},
    }
    assert {one.pattern.pattern for one in found} == set("abcd")
    assert built == ["planted_package.act"]


@pytest.mark.parametrize(
    "source",
    [
        "import yaml",
        "from email.parser import HeaderParser",
        "def act():\n    import csv",
        "def _parse_lines(text): ...",
    ],
)
def test_planted_readers_are_found(source: str) -> None:
    assert readers.reads("core.planted", ast.parse(source))
    assert not readers.reads("core.planted", ast.parse("import urllib.parse\ndef read_rows(): ..."))
