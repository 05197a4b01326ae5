"""Text that came from elsewhere, made fit to be shown: on a terminal, in a log, in a message.

A machine that nobody has authenticated may have written it, so no control character of it may get
there: they could move the cursor, forge lines or change the window's title. Pure.
"""

from __future__ import annotations

import re
from typing import Final

# Beside the controls: what writes text backwards, joins or hides it (Unicode's category Cf and its like), and halves
# of surrogate pairs, which no terminal takes.
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)
_BREAKS: Final = str.maketrans({"\n": "\\n", "\t": "\\t"})


def clean(text: str) -> str:
    """Return the text with controls but line feeds and tabs, and with what hides or turns text, written out."""
    return _UNFIT.sub(_escaped, text)


def one_line(text: str, most: int) -> str:
    """Return the text on one line, with all controls written out, and of ``most`` characters at the most.

    What was cut off is counted at the end. Only what stays is looked at: a text of any length costs the same.
    """
    cut = len(text) - most
    kept = clean(text[:most]).translate(_BREAKS)
    return kept if cut <= 0 else f"{kept[:most]}... ({cut} more characters)"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
