"""A seed of the simulation gives the same run in any process."""

from __future__ import annotations

import os
import subprocess
import sys

from tests import ROOT
from tests.simulation.scenario import failover
from tests.store.simulated.test_reproducible import _SEEDS, digest

_PRINT = """
from tests.simulation.scenario import failover
from tests.store.simulated.test_reproducible import digest
for seed in {seeds}:
    print(digest(seed), digest(seed, failover))
"""


def test_a_seed_gives_the_same_run_in_another_process_with_other_hashes() -> None:
    runs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        script = _PRINT.format(seeds=_SEEDS[:1])
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        runs.append(done.stdout.split())
    assert runs[0] == runs[1] == [digest(_SEEDS[0]), digest(_SEEDS[0], failover)]
