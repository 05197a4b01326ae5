"""Measures all expressions and readers; prints what it measures, and what grows faster than the text."""

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
from tests.support.growth.shapes import Shape, make_shapes

# Characters of the shorter text.
_LENGTH: Final = 512


def main(directory: Path) -> None:
    found: list[Expression] = pickle.loads((directory / "expressions").read_bytes())
    gc.disable()
    print("ready", flush=True)
    sys.stdin.readline()
    counter = Counter(directory)
    for one in found:
        cases = {
            partial(_prepare, partial(expressions.run, one, way), shape): f"{way}: {name}"
            for name, shape in make_shapes(one.pattern).items()
            for way in sorted(one.ways)
        }
        _measure(counter, one.place, cases)
    _measure(counter, "planted", {lambda length: partial(_count_each, "a" * length): "a"})
    for place, shapes in readers.READERS.items():
        run = partial(readers.run, place)
        for shape in shapes:
            run(shape(64))  # what it imports, and keeps for the next call
        _measure(counter, place, {partial(_prepare, run, one): repr(one(40)) for one in shapes})


def _count_each(text: str) -> list[int]:
    return [text.count(char) for char in text]


def _prepare(run: Callable[[Any], object], shape: Shape, length: int) -> Callable[[], object]:
    return partial(run, shape(length))


def _measure(counter: Counter, place: str, cases: dict[Case, str]) -> None:
    print(place, flush=True)
    if growing := counter.find_growing(list(cases), _LENGTH):
        print(f"GROWS {place}\t{cases[growing[0]]}: {growing[1]}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("done", flush=True)
