"""The user's home directory, if any: users in a container, and a unit's user without an entry in passwd, have none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def below_home(variable: str, default: str, env: Mapping[str, str]) -> Path | None:
    """Return the directory that the variable of the XDG specification names, or else ``default`` in the home directory.

    None if neither is an absolute path.
    """
    configured = Path(env.get(variable, ""))
    if configured.is_absolute():
        return configured
    try:
        path = Path("~", default).expanduser()
    except RuntimeError:
        return None
    return path if path.is_absolute() else None
