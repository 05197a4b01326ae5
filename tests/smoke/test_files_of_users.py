"""The file of users under several processes at once."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fast.cli.test_user import entries, file, user

__all__ = ["file"]


def test_readers_find_a_whole_file_at_any_time_and_no_addition_is_lost(file: Path) -> None:
    user(file, "add", "first", "--role", "admin")
    # Processes, because a lock of this kind is one of the process's files.
    children, wrong = set(), []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                user(file, "add", f"u{number}", "--role", "admin")
            finally:
                os._exit(0)
        children.add(child)
    while children:
        text = file.read_text()
        if not text.endswith(":admin\n") or "first:" not in text:
            wrong.append(text)
        children -= {os.waitpid(child, os.WNOHANG)[0] for child in children}
    assert wrong == []
    assert set(entries(file)) == {"first", "u0", "u1", "u2", "u3"}
