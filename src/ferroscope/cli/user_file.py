"""The htpasswd file of HTTP basic authentication, with roles as a third field.

The file is replaced as a whole, so that the api never reads half of it, and keeps its owner and mode. Comments and
the order of lines are kept.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from ferroscope.config import foreign
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.errors import Exit, Failure

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_NAME_RULE: Final = "1 to 64 letters, digits, '.', '_', '@' or '-', not starting with a sign"
_MIN_PASSWORD_CHARACTERS: Final = 8
# bcrypt ignores the bytes after these.
_LONGEST_BYTES: Final = 72
# A hash takes about 0.1 s; the api remembers for a while which passwords were right.
_BCRYPT_ROUNDS: Final = 10
_DEFAULT_ROLE: Final = "reader"
_NEW_MODE: Final = 0o600


def check_name(name: str) -> None:
    """``click.BadParameter`` if no user can have this name."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is not a valid name: {_NAME_RULE}", param_hint="NAME")


def put_user(path: Path, name: str, roles: Sequence[str], password: str) -> bool:
    """Add a user to the file, or replace the one of this name; return whether it was added."""
    line = f"{name}:{_hash_password(password)}:{','.join(dict.fromkeys(roles))}"
    with edit_users(path) as lines:
        place = find_user(lines, name)
        lines[len(lines) if place is None else place :] = [line] if place is None else [line, *lines[place + 1 :]]
    return place is None


# The password


def ask_password(text: str = "Password") -> str:
    """Ask for the password twice on a terminal; otherwise read a line from standard input."""
    if is_terminal(sys.stdin):
        password = str(click.prompt(text, hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise Failure(
                "no password: without a terminal, write it to the first line of standard input", exit_code=Exit.USAGE
            )
    if len(password) < _MIN_PASSWORD_CHARACTERS:
        raise Failure(
            f"the password is too short: at least {_MIN_PASSWORD_CHARACTERS} characters", exit_code=Exit.USAGE
        )
    if len(password.encode()) > _LONGEST_BYTES:
        raise Failure(
            f"the password is too long: bcrypt uses only the first {_LONGEST_BYTES} bytes", exit_code=Exit.USAGE
        )
    if "\0" in password:
        raise Failure("the password contains a NUL character", exit_code=Exit.USAGE)
    return password


def _hash_password(password: str) -> str:
    import bcrypt

    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(_BCRYPT_ROUNDS)).decode()


# The file


@contextmanager
def edit_users(path: Path) -> Iterator[list[str]]:
    """Yield the lines of the file, and replace the file if they changed; other editors wait meanwhile."""
    with _lock(path.parent):
        lines = read_lines(path)
        before = list(lines)
        yield lines
        if lines != before:
            _replace(path, "".join(f"{line}\n" for line in lines))


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Lock the directory: the file is replaced, so a lock on the file would lock the old one."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Write a new file and rename it to ``path``, with owner, group and mode of the old one."""
    refuse_foreign(path)
    exists = path.exists()
    like = path.stat() if exists else path.parent.stat()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            if os.geteuid() == 0:
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, like.st_mode & 0o777 if exists else _NEW_MODE)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_lines(path: Path) -> list[str]:
    try:
        return text_of(path.read_bytes()).splitlines() if path.exists() else []
    except NotTextError as exc:
        raise Failure(f"{path}: {exc}", exit_code=Exit.USAGE) from None


def find_user(lines: list[str], name: str) -> int | None:
    return next((place for place, line in enumerate(lines) if name_in(line) == name), None)


def name_in(line: str) -> str:
    """Return the user's name in a line, "" for a comment or an empty line."""
    return "" if line.startswith("#") else line.strip().partition(":")[0]


def roles_in(line: str) -> list[str]:
    fields = line.strip().split(":", 2)
    return [role.strip() for role in fields[2].split(",")] if len(fields) > 2 and fields[2] else [_DEFAULT_ROLE]


def refuse_foreign(path: Path) -> None:
    """As root, refuse a file that other users could replace by a link."""
    try:
        foreign.refuse(path.parent)
    except PermissionError as exc:
        raise Failure(f"root does not use {path}: {exc.strerror}", exit_code=Exit.USAGE) from exc
