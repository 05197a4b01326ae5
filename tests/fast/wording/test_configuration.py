"""What a start reports about the configuration file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ferroscope.config.load import ConfigurationError, load
from tests.fast.wording.table import wrong
from tests.support import misses


def _configuration(text: str) -> Callable[[Path], str]:
    def provoke(path: Path) -> str:
        file = path / "ferroscope.conf"
        file.write_text(text, encoding="utf-8")
        try:
            load([str(file)], {})
        except ConfigurationError as exc:
            return str(exc).replace(str(file), "FILE")
        return ""

    return provoke


CONFIGURATION: Final[tuple[tuple[str, Callable[[Path], str], str], ...]] = (
    (
        "not a number",
        _configuration("[api]\nthreads = many"),
        "[api] threads: 'many' is not a number (from FILE:2)",
    ),
    (
        "lease too short",
        _configuration("[lease]\nprofile = custom\nttl = 2\nrenew = 1.5"),
        "[lease] ttl is 2, but must be at least renew + margin + 0.5 = 3 s; otherwise a leader loses its lease before "
        "it can renew it",
    ),
    (
        "same port twice",
        _configuration("[api]\nbare_metal_port = 80\nintrospection_port = 80"),
        "[api] bare_metal_port and introspection_port are both 80; they must differ (0 disables one of them)",
    ),
    (
        "unknown option",
        _configuration("[worker]\nthread = 4"),
        "FILE:2: unknown option thread in [worker]; did you mean threads?",
    ),
    (
        "unknown section",
        _configuration("[workers]\nthreads = 4"),
        "FILE:1: unknown section [workers]; did you mean [worker]?",
    ),
)


def test_configuration(tmp_path: Path) -> None:
    misses.none(wrong(CONFIGURATION, tmp_path))
