"""Measures all expressions and readers; prints what it measures, and what grows faster than the text.

What is done before "ready" costs a fifth of what it costs after that: instructions are not counted yet.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.support.growth import expressions, readers
from tests.support.growth.counting import Case, Counter
from tests.support.growth.expressions import Expression
from tests.support.growth.shapes import Shape

# Characters of the shorter text: readers do more for each call than expressions.
_LENGTH: Final = 512
_LENGTH_FOR_EXPRESSIONS: Final = 256


def main(directory: Path) -> None:
    expressions_and_shapes: list[tuple[Expression, dict[str, Shape]]]
    expressions_and_shapes = pickle.loads((directory / "expressions").read_bytes())
    for place, shapes in readers.READERS.items():
        for shape in shapes:
            readers.run(place, shape(64))  # what it imports, and keeps for the next call
    gc.disable()
    print("ready", flush=True)
    sys.stdin.readline()
    counter = Counter(directory)
    for expression, by_name in expressions_and_shapes:
        cases = {
            partial(_prepare, partial(expressions.run, expression, way), shape): f"{way}: {name}"
            for name, shape in by_name.items()
            for way in sorted(expression.ways)
        }
        _measure(counter, expression.place, cases, _LENGTH_FOR_EXPRESSIONS)
    _measure(counter, "planted", {lambda length: partial(_count_each, "a" * length): "a"})
    for place, shapes in readers.READERS.items():
        run = partial(readers.run, place)
        _measure(counter, place, {partial(_prepare, run, one): repr(one(40)) for one in shapes})


def _count_each(text: str) -> list[int]:
    return [text.count(char) for char in text]


def _prepare(run: Callable[[Any], object], shape: Shape, length: int) -> Callable[[], object]:
    return partial(run, shape(length))


def _measure(counter: Counter, place: str, cases: dict[Case, str], length: int = _LENGTH) -> None:
    print(place, flush=True)
    if growing := counter.find_growing(list(cases), length):
        print(f"GROWS {place}\t{cases[growing[0]]}: {growing[1]}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("done", flush=True)
