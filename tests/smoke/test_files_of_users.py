"""The file of users under several processes at once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.fast.cli.test_user import entries, file, user

__all__ = ["file"]


def test_readers_find_a_whole_file_at_any_time_and_no_addition_is_lost(file: Path) -> None:
    user(file, "add", "first", "--role", "admin")
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            text = file.read_text()
            if not text.endswith(":admin\n") or "first:" not in text:
                wrong.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    # Processes, because a lock of this kind is one of the process's files.
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                user(file, "add", f"u{number}", "--role", "admin")
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    stop.set()
    reader.join()
    assert wrong == []
    assert set(entries(file)) == {"first", "u0", "u1", "u2", "u3"}
