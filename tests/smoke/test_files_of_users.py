"""The file of users under several processes at once."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from tests.fast.cli.test_user import PASSWORD, entries, file, user

__all__ = ["file"]


def test_readers_find_a_whole_file_at_any_time_and_no_addition_is_lost(file: Path) -> None:
    user(file, "add", "first", "--role", "admin")
    # Processes, because a lock of this kind is one of the process's files.
    command = [sys.executable, "-m", "ferroscope", "user", "add", "--role", "admin", "--file", str(file)]
    children = [Popen([*command, f"u{number}"], stdin=PIPE, stdout=DEVNULL) for number in range(4)]
    for child in children:
        child.stdin.write(PASSWORD.encode() + b"\n")
        child.stdin.close()
    wrong = []
    while any(child.poll() is None for child in children):
        text = file.read_text()
        if not text.endswith(":admin\n") or "first:" not in text:
            wrong.append(text)
    assert [child.returncode for child in children] == [0, 0, 0, 0]
    assert wrong == []
    assert set(entries(file)) == {"first", "u0", "u1", "u2", "u3"}
