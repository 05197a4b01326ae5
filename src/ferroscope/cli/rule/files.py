"""Files with rules: YAML or JSON, one rule or a list of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ferroscope.cli.client import Json
from ferroscope.cli.exits import Exit, Failure


def content(path: str) -> bytes:
    """Return what the file holds; ``-`` is standard input."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as exc:
        raise Failure(f"{path} cannot be read: {exc.strerror}", exit_code=Exit.USAGE) from None


def rules(path: str) -> list[dict[str, Any]]:
    """Return the rules of the file, as they are written."""
    import yaml

    try:
        written: Json = yaml.safe_load(content(path))
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise Failure(
            f"{path} is neither YAML nor JSON: {' '.join(str(exc).split())[:300]}", exit_code=Exit.USAGE
        ) from None
    try:
        json.dumps(written, allow_nan=False, default=str)
    except (ValueError, TypeError, RecursionError) as exc:
        raise Failure(f"{path} holds what JSON cannot: {exc}", exit_code=Exit.USAGE) from None
    found = written if isinstance(written, list) else [written]
    if not found or not all(isinstance(rule, dict) for rule in found):
        raise Failure(
            f"{path} holds no rule",
            exit_code=Exit.USAGE,
            advice="a rule has actions, and mostly conditions: see docs/how-to/write-a-rule.md",
        )
    return found


def one(path: str) -> dict[str, Any]:
    """Return the only rule of the file."""
    found = rules(path)
    if len(found) != 1:
        raise Failure(f"{path} holds {len(found)} rules; this takes one", exit_code=Exit.USAGE)
    return found[0]
