"""The error of a configuration that is valid by itself, but cannot be used here."""

from __future__ import annotations


class SetupError(Exception):
    """An invalid configuration: ``summary`` says what is wrong, ``advice`` what to do; the message has both."""

    def __init__(self, summary: str, advice: str = "") -> None:
        super().__init__(f"{summary}; {advice}" if advice else summary)
        self.summary = summary
        self.advice = advice
