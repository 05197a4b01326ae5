"""One finding of ``ferroscope doctor``."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "note", "wrong"]


class Check(msgspec.Struct, frozen=True):
    """What was looked at and found; ``advice`` is what to do. A note is worth knowing, not wrong."""

    name: str
    verdict: Verdict
    sentence: str
    advice: str = ""
