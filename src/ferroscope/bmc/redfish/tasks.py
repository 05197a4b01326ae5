"""Commands that a Redfish service carries out later: it answers 202, and a task monitor says what became of them.

The monitor answers 202 until the task has ended, and then as the command would have been answered; some services lead
to the task instead, which says so in its ``TaskState``. Source: DSP0266, 13.5.6.
"""

from __future__ import annotations

from typing import Any, Final

from sushy import exceptions

from ferroscope.bmc.redfish.connector import ACCEPTED_STATUS
from ferroscope.bmc.redfish.failures import InvalidAnswerError, TaskFailedError, is_temporary
from ferroscope.core import json_safety
from ferroscope.core.model import Document
from ferroscope.core.values import one_line
from ferroscope.hardware.parts import mapping, mappings, text

_FORGOTTEN: Final = frozenset({404, 410})
_RUNNING: Final = frozenset({"new", "starting", "running", "pending", "stopping", "suspended", "cancelling", "service"})
_FAILED: Final = frozenset({"exception", "killed", "cancelled", "interrupted"})
_MAX_SHOWN_CHARACTERS: Final = 200


def is_running(connector: Any, monitor: str) -> bool:
    """Whether the task goes on; ``TaskFailedError`` if it has failed, sushy's exceptions if nobody knows."""
    try:
        answer = connector.get(path=monitor)
    except InvalidAnswerError:  # there is nothing to say
        return bool(connector.status == ACCEPTED_STATUS)
    except exceptions.AccessError:
        raise
    except exceptions.HTTPError as exc:
        if exc.status_code in _FORGOTTEN:
            return False
        if is_temporary(exc):
            raise
        raise TaskFailedError(one_line(str(exc.detail or f"HTTP {exc.status_code}"), _MAX_SHOWN_CHARACTERS)) from None
    task = mapping(json_safety.decode(answer.content))
    state = str(task.get("TaskState")).lower()
    if state in _FAILED:
        raise TaskFailedError(_reason(task) or state)
    return state in _RUNNING or (answer.status_code == ACCEPTED_STATUS and "TaskState" not in task)


def _reason(task: Document) -> str:
    """Return what the task says last."""
    all_words = [words for message in mappings(task.get("Messages")) if (words := text(message.get("Message")))]
    return one_line(all_words[-1], _MAX_SHOWN_CHARACTERS) if all_words else ""
