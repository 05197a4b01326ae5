"""Looks up what is wrong with a table of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def wrong(table: Iterable[tuple[str, Callable[..., str], str]], *given: Any) -> Iterator[str]:
    """Yield the rows whose text is another one."""
    for name, provoke, text in table:
        if (found := provoke(*given)) != text:
            yield f"{name}: {found!r}, not {text!r}"


# The command line: standard error of a command.


# Configuration: what a start reports about the configuration file.


# Findings of doctor and status: summary; advice.
