"""How hooks read what a ramdisk has sent, which may hold anything at any place: what is not as expected is not there.

A hook that misses what it can do without says so with ``warn``, and goes on.
"""

from __future__ import annotations

from ferroscope.core.model import Document, Severity
from ferroscope.core.reasons import Reason
from ferroscope.hooks.base import HookTask


def part(document: Document, name: str) -> Document:
    """Return the object of this name in ``document``, an empty one where there is none."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def records(document: Document, name: str) -> list[Document]:
    """Return the objects in the list of this name in ``document``, none where there is no list."""
    found = document.get(name)
    return [record for record in found if isinstance(record, dict)] if isinstance(found, list) else []


def warn(task: HookTask, hook: str, message: str) -> None:
    """Note on the timeline, under the hook's own name, what of the data cannot be used."""
    task.note(hook, message, severity=Severity.WARNING, reason=Reason.INVALID_INVENTORY)
