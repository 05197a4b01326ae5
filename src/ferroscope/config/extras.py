"""How to install an optional dependency: from the built wheel or a checkout, whichever was installed."""

from __future__ import annotations

from ferroscope import __version__


def extra(name: str) -> str:
    """Return what to do to have the packages of an extra."""
    wheel = f"ferroscope-{__version__}-py3-none-any.whl[{name}]"
    return f"install Ferroscope with its extra: pipx install --force '{wheel}', or in a checkout '.[{name}]'"
