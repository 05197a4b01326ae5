"""Resets that overlap with the death of the process that commanded them."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import resets


def test_no_machine_is_reset_twice_whose_worker_died_while_the_bmc_was_at_it(
    postgresql_url: str, tmp_path: Path
) -> None:
    """The same with 200 machines: ``python -m tests.support.cluster.resets``."""
    found = resets.play(postgresql_url, tmp_path, machines=10, batch=10)
    assert found.held, found
    assert found.killed
    assert not found.wrong
