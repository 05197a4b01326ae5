"""The source ``env``: ``secret://env/NAME`` is an environment variable of the worker, whose name has the prefix."""

from __future__ import annotations

import os

from ferroscope.contracts.plugins import SecretOptions, SecretSourceError


class EnvSource:
    """See ``contracts.plugins.SecretSource``."""

    def __init__(self, options: SecretOptions) -> None:
        if not options.env_prefix:
            raise ValueError("the source env requires a prefix")
        self._prefix = options.env_prefix

    def resolve(self, path: str) -> str:
        """Return the value of the variable; the prefix is a part of its name."""
        value = os.environ.get(path) if path.startswith(self._prefix) else None
        if value is None:
            raise SecretSourceError(f"no such environment variable with the prefix {self._prefix}")
        return value
