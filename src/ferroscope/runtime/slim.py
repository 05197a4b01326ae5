"""Starts the pxe-filter without what its libraries would load in passing, and it never uses.

They do without each of these where it is not installed: colours of tracebacks, SQLAlchemy's way
to asyncio, and Python's TLS, where neither the database's driver (libpq has its own) nor the
metrics' port needs it. That is a sixth of the process's memory on each boot host.
"""

from __future__ import annotations

import sys
from typing import Any, Final, cast

from ferroscope.config.options import Settings
from ferroscope.runtime.handover import inherited

_NEVER: Final = ("rich", "greenlet")
_TLS: Final = ("ssl", "_ssl", "_hashlib")


def unused(settings: Settings) -> tuple[str, ...]:
    """Return the modules that this process does not need."""
    native = settings.database.connection.startswith(("postgresql", "sqlite"))
    return (*_NEVER, *_TLS) if native and not settings.metrics.port else _NEVER


def main() -> int:
    """Take over from the command line; the argument is where it has left the settings."""
    settings = inherited(int(sys.argv[1]))
    for name in unused(settings):
        cast("dict[str, Any]", sys.modules).setdefault(name, None)
    from ferroscope.runtime.life import StartError
    from ferroscope.runtime.pxe_filter import run

    try:
        return run(settings)
    except StartError as exc:
        sys.stderr.write(f"Error: {exc}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
