"""The text of files that people write: in UTF-8 or UTF-16, with the byte order mark that editors on Windows put first.

Every reader of such a file uses this. Otherwise the mark becomes a part of the first word, such as a user's name, a
section or a password.
"""

from __future__ import annotations

import io
from typing import Final

_UTF16: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_MARK: Final = "\ufeff"


class NotTextError(ValueError):
    """The file is in another encoding, or is not a text. The message says where, and quotes nothing."""


def text_of(content: bytes) -> str:
    """Return the text, without a byte order mark; ``NotTextError``."""
    encoding = _UTF16.get(content[:2], "utf-8")
    if b"\0" in content[:2] and encoding == "utf-8":  # UTF-16 without a mark: the first character is ASCII
        encoding = "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    try:
        return content.decode(encoding).lstrip(_MARK)
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise NotTextError(f"line {line} is not in UTF-8 or UTF-16: save the file as UTF-8") from None


def lines_of(content: bytes) -> list[str]:
    """Return the lines of the text, whatever ends them; ``NotTextError``."""
    return [line.rstrip("\n") for line in io.StringIO(text_of(content), newline=None)]
