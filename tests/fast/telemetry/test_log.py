"""What is logged of what machines say: one line for each, whatever they say, and never a long one."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from ferroscope.config.options import LogSettings
from ferroscope.telemetry import log

_FORGED = "X\n2026-11-22T00:00:00Z [info     ] admin logged in\r\x1b]0;owned\x07\u202e\x9b31m"


@pytest.fixture(autouse=True)
def _undone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo the configuration afterwards."""
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    yield
    structlog.reset_defaults()
    logging.basicConfig(handlers=handlers or [logging.NullHandler()], level=level, force=True)


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_value_makes_a_line_or_controls_a_terminal(
    capfd: pytest.CaptureFixture[str], form: Literal["console", "json"]
) -> None:
    log.configure(LogSettings(format=form), process="test")
    logger = structlog.get_logger()
    logger.warning(f"serial is {_FORGED}")
    logger.warning("refused", address=_FORGED, macs=[_FORGED], nested={"a": {_FORGED: _FORGED}})
    logging.getLogger("waitress").warning("bad request %s", _FORGED)
    text = capfd.readouterr().err
    assert len(text.splitlines()) == 3
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_value_is_long(capfd: pytest.CaptureFixture[str], form: Literal["console", "json"]) -> None:
    log.configure(LogSettings(format=form), process="test")
    huge = "fe80::1%" + "a" * 5_000_000
    structlog.get_logger().warning(
        huge, address=huge, macs=[huge] * 100, deep={"a": {"b": {"c": {"d": huge}}}}, n=9**9999
    )
    assert len(capfd.readouterr().err) < 15_000


def test_a_traceback_keeps_its_lines_and_they_are_no_lines_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure(LogSettings(), process="test")
    try:
        {}[_FORGED]
    except KeyError:
        structlog.get_logger().exception("a fault")
    written = capfd.readouterr().err
    lines = written.splitlines()
    assert len(lines) > 3
    assert all(line.startswith((" ", "Traceback")) for line in lines[1:])
    assert "\x1b]" not in written


def test_parts_of_the_service_have_levels_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    levels = {"ferroscope.worker": "debug", "ferroscope.worker.loop": "error", "alembic": "info"}
    log.configure(LogSettings(level="warning", levels=levels, format="json"), process="test")
    structlog.get_logger("ferroscope.api").info("too little")
    structlog.get_logger("ferroscope.workers").info("another part")
    structlog.get_logger("ferroscope.worker.machine").debug("wanted")
    structlog.get_logger("ferroscope.worker.loop").warning("not wanted")
    structlog.get_logger("ferroscope.worker.loop").exception("always")
    logging.getLogger("alembic.runtime").info("a library's")
    events = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert events == ["wanted", "always", "a library's"]
