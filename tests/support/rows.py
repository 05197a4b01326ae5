"""A test of a table is one test: it runs with each row, and reports all rows that fail."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test with each row, like ``parametrize``; its fixtures are made once, so the rows must not share any."""
    columns = (names,) if isinstance(names, str) else names
    table = [(row,) if isinstance(names, str) else tuple(row) for row in rows]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run_rows(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in table:
                try:
                    test(**fixtures, **dict(zip(columns, row, strict=True)))
                except (Exception, pytest.fail.Exception) as exc:  # noqa: BLE001 the other rows run, too
                    exc.add_note(f"with the row {reprlib.repr(row)}")
                    failures.append(exc)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        run_rows.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run_rows

    return decorate
