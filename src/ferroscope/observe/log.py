"""Structured logging to standard error, for people or for machines; no secrets ever reach it.

Standard library loggers (waitress, Alembic) go the same way, and so do tracebacks of threads. A line
that cannot be written is lost, and nothing else: no full disk, closed pipe or missing standard error
ever reaches those who log.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import TextIO

import structlog

from ferroscope.config.settings import LogSettings


class LossyStream(io.TextIOWrapper):
    """Text for a file descriptor, at once and unbuffered; what cannot be written is dropped."""

    def __init__(self, descriptor: int) -> None:
        file = io.FileIO(descriptor, "w", closefd=False)
        super().__init__(file, encoding="utf-8", errors="backslashreplace", write_through=True)

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        """Do nothing: everything is written at once."""


def configure(settings: LogSettings, *, process: str) -> None:
    """Set up logging for this process; every line carries ``process``."""
    sys.stderr = stderr = _lossy(sys.stderr)
    level = logging.getLevelName(settings.level.upper())
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if settings.format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _logger, _method, event: {**event, "process": process},
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_plain, renderer], foreign_pre_chain=shared))
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    # It warns whenever two requests come at once, which is what a server is for.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)


def _lossy(stderr: TextIO | None) -> TextIO:
    """Return standard error as it may be logged to; where it is closed, nothing else shall ever get its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free
    if stderr is None:
        return LossyStream(2)
    try:
        return LossyStream(stderr.fileno())
    except (OSError, ValueError):  # no file: whoever put it there takes everything
        return stderr


def _plain(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event
