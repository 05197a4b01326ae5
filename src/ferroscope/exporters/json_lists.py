"""Writes lists of JSON objects, one line each, as they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec


def write(objects: Iterable[Any], output: BinaryIO) -> None:
    """Write the list."""
    before = b"[\n"
    for one in objects:
        output.write(before + msgspec.json.encode(one))
        before = b",\n"
    output.write(b"[]\n" if before == b"[\n" else b"\n]\n")
