"""Structured logging to standard error, for people or for machines; no secrets ever reach it.

Standard library loggers (waitress, Alembic) go the same way.
"""

from __future__ import annotations

import logging
import sys

import structlog

from ferroscope.config.settings import LogSettings


def configure(settings: LogSettings, *, process: str) -> None:
    """Set up logging for this process; every line carries ``process``."""
    level = logging.getLevelName(settings.level.upper())
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if settings.format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[_plain, renderer], foreign_pre_chain=shared))
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    # It warns whenever two requests come at once, which is what a server is for.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)


def _plain(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    event.pop("_record", None)
    event.pop("_from_structlog", None)
    return event
