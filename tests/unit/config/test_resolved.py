"""What one section of the configuration leaves to another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.options import load


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("", "deny"),
        ("[auto_discovery]\nenabled = true\n", "allow"),
        ("[pxe_filter]\nunknown_hosts = allow\n", "allow"),
        ("[pxe_filter]\nunknown_hosts = deny\n[auto_discovery]\nenabled = true\n", "deny"),
    ],
)
def test_unknown_machines_boot_where_they_are_discovered_unless_the_gate_is_told_otherwise(
    tmp_path: Path, text: str, unknown: str
) -> None:
    file = tmp_path / "f.conf"
    file.write_text(text)
    assert load([str(file)]).pxe_filter.unknown_hosts == unknown
