"""Findings: what the service's status and ``ferroscope doctor`` report. Pure.

Programs decide by a finding's code, never by its text.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "note", "wrong"]


class Finding(msgspec.Struct, frozen=True):
    """A result of a check: ``code`` is for programs, ``advice`` says what to do. A note is not an error.

    ``search`` finds the machines concerned, in the query language; empty: the finding is about the service. ``advice``
    may be empty if an operator has to look at the machines.
    """

    code: str
    verdict: Verdict
    summary: str
    advice: str = ""
    search: str = ""
