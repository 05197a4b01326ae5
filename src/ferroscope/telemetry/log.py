"""Structured logging to standard error, as console lines or JSON; without secrets.

Standard library loggers (asyncio, Alembic) and tracebacks of threads use the same pipeline. A line that cannot be
written is lost, without any other effect: a full disk, closed pipe or missing standard error never raises an exception
in the code that logs. Since data from machines is logged too, every value is truncated and its control characters are
escaped, in one place for all formats, so that no log line can be forged.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TextIO

import structlog

from ferroscope.config.options import LogSettings
from ferroscope.contracts.telemetry import Moved
from ferroscope.core.model import Inspection
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import STATES, State
from ferroscope_client.core.values import clean, one_line

MAX_VALUE: Final = 200
MAX_EVENT: Final = 1000
# Tracebacks are our own text, and useful only if complete.
_MAX_TRACEBACK_CHARACTERS: Final = 20_000
_MAX_ITEMS: Final = 32
_MAX_DEPTH: Final = 3


class LossyStream(io.TextIOWrapper):
    """Unbuffered text output to a file descriptor; text that cannot be written is dropped."""

    def __init__(self, descriptor: int) -> None:
        file = io.FileIO(descriptor, "w", closefd=False)
        super().__init__(file, encoding="utf-8", errors="backslashreplace", write_through=True)

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        """Do nothing: output is unbuffered."""


def configure(settings: LogSettings, *, process: str) -> None:
    """Configure logging for this process; every line has the field ``process``."""
    sys.stderr = stderr = _lossy(sys.stderr)
    level: int = logging.getLevelName(settings.level.upper())
    levels = {part: int(logging.getLevelName(name.upper())) for part, name in settings.levels.items()}
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if settings.format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _logger, _method, event: {**event, "process": process},
        structlog.processors.format_exc_info,
        limit_values,
    ]
    structlog.configure(
        processors=[*([_by_part(level, levels)] if levels else []), *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(min(level, *levels.values()) if levels else level),
        logger_factory=lambda *names: _Logger(stderr, *names),
        cache_logger_on_first_use=False,  # the level may change, see ``runtime.system``
    )
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[_drop_internals, renderer], foreign_pre_chain=shared)
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    for part, part_level in levels.items():
        logging.getLogger(part).setLevel(part_level)


class _Logger(structlog.PrintLogger):
    """Writes lines; ``name`` is the logger's name, such as ``ferroscope.worker``."""

    def __init__(self, file: TextIO, name: str = "") -> None:
        super().__init__(file)
        self.name = name


def _by_part(level: int, levels: Mapping[str, int]) -> structlog.typing.Processor:
    """Return a processor that drops lines below their logger's level; the longest matching name applies."""
    numbers = {"exception": logging.ERROR, "warn": logging.WARNING}

    @cache
    def min_level(name: str) -> int:
        fitting = [part for part in levels if name == part or name.startswith(f"{part}.")]
        return levels[max(fitting, key=len)] if fitting else level

    def select(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        number = numbers.get(method) or int(logging.getLevelName(method.upper()))
        if number < min_level(getattr(logger, "name", "")):
            raise structlog.DropEvent
        return event

    return select


def limit_values(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Truncate values to ``MAX_VALUE`` characters and the message to ``MAX_EVENT``; escape control characters."""
    return {
        name: value if isinstance(value, str) and len(value) <= MAX_VALUE and value.isprintable() else _fit(name, value)
        for name, value in event.items()
    }


def _fit(name: str, value: Any) -> Any:
    if name in ("_record", "_from_structlog"):
        return value
    if name == "exception":  # indented, so that none of its lines looks like a log line
        return clean(str(value)[-_MAX_TRACEBACK_CHARACTERS:]).replace("\n", "\n  ")
    if name == "event":
        return _line(value, MAX_EVENT)
    return _limit(value, _MAX_DEPTH)


def _limit(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= 64 else f"an integer of {value.bit_length()} bits"
    if depth and isinstance(value, dict):
        items = list(value.items())[:_MAX_ITEMS]
        return {_line(key, MAX_VALUE): _limit(item, depth - 1) for key, item in items}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_limit(item, depth - 1) for item in list(value)[:_MAX_ITEMS]]
    return _line(value, MAX_VALUE)


def _line(value: Any, max_characters: int) -> str:
    text = str(value)
    return text if len(text) <= max_characters and text.isprintable() else one_line(text, max_characters)


def _lossy(stderr: TextIO | None) -> TextIO:
    """Return standard error for logging. If it is closed, reserve its descriptor so that no other file gets it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if stderr is None:
        return LossyStream(2)
    try:
        return LossyStream(stderr.fileno())
    except (OSError, ValueError):  # not a file: a replacement that accepts all text
        return stderr


def _drop_internals(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event


# Lines that any caller can cause, in any number.


class QuietLog:
    """Allows ``burst`` log lines in ``period`` seconds; the next line after that says how many were suppressed."""

    def __init__(self, burst: int = 100, period: float = 10.0) -> None:
        self._burst = burst
        self._period = period
        self._lock = threading.Lock()
        self._began = float("-inf")
        self._lines = 0
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were suppressed before this one; None if this one must be suppressed too."""
        with self._lock:
            if now - self._began >= self._period:
                self._began, self._lines = now, 0
            if self._lines >= self._burst:
                self._left_out += 1
                return None
            self._lines += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


# Two log lines for each inspection: when it begins, and when it has ended, with the duration of its phases.
#
# They are logged after the commit by the process that made the change: once, unless that process dies in between. More
# would be too much with 10,000 nodes; the timeline has all steps.

_log = structlog.get_logger(__name__)

_STARTED: Final = {state: flags.log for state, flags in STATES.items() if flags.log is not None}
_TIMED_OUT: Final = "inspection timed out"
_ENDED_BY: Final[dict[str, str]] = {
    Reason.ABORTED: "inspection aborted",
    Reason.TIMEOUT: _TIMED_OUT,
    Reason.RAMDISK_SILENT: _TIMED_OUT,
}


def log_transition(moved: Moved) -> None:
    """Log the transition if an inspection has begun or ended with it."""
    inspection, node, target = moved.inspection, moved.node, moved.transition.target
    if inspection is None:
        return
    ids = {"node": node.uuid, "name": node.name, "inspection": inspection.uuid}
    if (old := moved.replaced) is not None:
        _log.info("inspection replaced", **ids | {"inspection": old.uuid}, reason=old.reason, **phases(old))
    if target in _STARTED:
        _log.info(_STARTED[target], **ids)
    elif target is State.FINISHED:
        _log.info("inspection finished", **ids, **phases(inspection))
    elif target is State.ERROR:
        event = _ENDED_BY.get(inspection.reason or "", "inspection failed")
        level = _log.info if inspection.reason == Reason.ABORTED else _log.warning
        level(event, **ids, reason=inspection.reason, error=inspection.error, **phases(inspection))


def phases(inspection: Inspection) -> dict[str, float]:
    """Return the duration in seconds of an ended inspection, and of each phase that it reached.

    ``queue`` is the part of it during which it waited for a worker.
    """
    end = inspection.started_at if inspection.finished_at is None else inspection.finished_at
    marks = (
        ("starting", inspection.started_at),
        ("waiting", inspection.waiting_since),
        ("processing", inspection.processing_since),
    )
    reached = [(name, at) for name, at in marks if at is not None]
    ends = [at for _, at in reached[1:]] + [end]
    spent = {name: max(0.0, until - at) for (name, at), until in zip(reached, ends, strict=True)}
    return {
        name: round(seconds, 2)
        for name, seconds in {"total": end - inspection.started_at, "queue": inspection.queued, **spent}.items()
    }
