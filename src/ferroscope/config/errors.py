"""Errors of a valid configuration that cannot be used here, and of a process that cannot start."""

from __future__ import annotations

from ferroscope import __version__


class SetupError(Exception):
    """An invalid configuration: ``summary`` says what is wrong, ``advice`` what to do; the message has both."""

    def __init__(self, summary: str, advice: str = "") -> None:
        super().__init__(f"{summary}; {advice}" if advice else summary)
        self.summary = summary
        self.advice = advice


class StartError(Exception):
    """The process cannot start; the message says why and what to do."""


class OptionRefusedError(StartError):
    """The configuration cannot be used, and nothing was opened; ``problems`` lists everything that is wrong."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def extra(name: str) -> str:
    """Return how to install the packages of an extra, for an installed wheel or a checkout."""
    wheel = f"ferroscope-{__version__}-py3-none-any.whl[{name}]"
    command = f"pipx inject --force ferroscope-client '{wheel}'"
    return f"install Ferroscope with its extra: {command}, or in a checkout '.[{name}]'"
