"""What is wrong with a database, in its own words, and what is wrong with its URL, in ours; never a credential."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

_FORMS: Final = "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME"
_FAMILIES: Final = ("sqlite", "postgresql", "mysql", "mariadb")
_LONGEST: Final = 200
# A password that was not encoded for a URL ends up in what is taken for the host's name.
_BEFORE_AT: Final = re.compile(r"""[^\s"']+@(?=[^\s"'])""")


class DatabaseUrlError(ValueError):
    """``[database] connection`` cannot be used; the message says why, and what to write; it quotes nothing of it."""

    def __init__(self, summary: str, advice: str) -> None:
        super().__init__(f"{summary}; {advice}")
        self.summary = summary
        self.advice = advice


def checked(connection: str) -> URL:
    """Return the URL; ``DatabaseUrlError`` where it is none, or none of a database that there is."""
    try:
        url = make_url(connection)
    except ArgumentError:
        raise DatabaseUrlError("it is not a URL", f"it has to be {_FORMS}") from None
    except ValueError:  # Python's message quotes what it takes for the port
        raise DatabaseUrlError(
            "what stands for the port is not a number", "in user and password write %40 for @, %3A for :, %2F for /"
        ) from None
    family = url.get_backend_name()
    if family not in _FAMILIES:
        raise DatabaseUrlError(f"there is no database of the kind {family!r}", f"it has to be {_FORMS}")
    if family == "sqlite" and url.database in (None, "", ":memory:"):
        raise DatabaseUrlError("SQLite needs a file, for processes and threads to share", "write sqlite:///FILE")
    if family != "sqlite" and "@" in (url.host or "") + (url.database or ""):
        raise DatabaseUrlError("user or password has an @ (or a /) in it", "write %40 for @, %2F for /")
    return url


def cannot_answer(url: URL, error: DBAPIError) -> str:
    """Return why the database cannot answer, with the name of SQLite's file, which SQLite does not tell."""
    file = f" ({url.database})" if url.get_backend_name() == "sqlite" else ""
    return f"the database cannot answer: {told(error)}{file}"


def told(error: DBAPIError) -> str:
    """Return the first line of what driver or server said, with its number where there is one."""
    original: Any = error.orig
    arguments: list[Any] = list(getattr(original, "args", ()))
    number = getattr(original, "sqlstate", None)
    text = str(original)
    if len(arguments) > 1 and isinstance(arguments[0], int):  # MariaDB's driver
        number, text = arguments[0], str(arguments[1])
    line = _BEFORE_AT.sub("******@", next(iter(text.strip().splitlines()), ""))[:_LONGEST]
    return (line or type(original).__name__) + (f" ({number})" if number else "")
