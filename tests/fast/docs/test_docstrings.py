"""Names in the docstrings of the source exist, as those on pages do."""

from __future__ import annotations

import ast

from tests.fast.docs import docstrings
from tests.support import misses


def test_names_in_docstrings_exist() -> None:
    misses.none(miss for source in docstrings.docstrings() for miss in docstrings.wrong(source))


def test_names_of_what_was_removed_are_found_with_their_lines() -> None:
    text = '"""The package.\n\n``domain`` decides; ``ports.bus`` says what is needed; ``core`` is there.\n"""\n'
    text += (
        'def f():\n    """Run by ``adapters.sql.migrate``, after ``transition.start`` and ``worker/no_such.py``."""\n'
    )
    page = docstrings.of("src/ferroscope/__init__.py", ast.parse(text), text)
    assert [miss.partition(": ")[0].rpartition(":")[2] for miss in sorted(docstrings.wrong(page))] == [
        "3",
        "3",
        "6",
        "6",
    ]


def test_a_name_in_code_is_none_of_a_docstring() -> None:
    text = '"""One."""\nname = "``ports.bus``"\n'
    assert docstrings.of("src/ferroscope/x.py", ast.parse(text), text).spans == []
