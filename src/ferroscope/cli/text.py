"""Text that came from elsewhere, made fit for a terminal.

A machine that nobody has authenticated may have written it, so no control character of it may
reach the terminal: they could move the cursor, forge lines or change the window's title.
"""

from __future__ import annotations

from typing import Final

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def clean(text: str) -> str:
    """Return the text with every control character but line feeds and tabs written out."""
    return text.translate(_CONTROLS)
