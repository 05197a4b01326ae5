"""What a process holds after large blocks have come and gone on many threads, as in a process of its unit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.units import DAEMONS, environment

# Each thread frees what is large and keeps something small from the same time.
_CHURN: Final = """
import os, random, threading
from bench.usage import memory

kept = []

def work(seed):
    chance = random.Random(seed)
    for _ in range(40):
        large = [bytes(chance.choice((50_000, 200_000, 1_000_000, 8_000_000))) for _ in range(4)]
        kept.append(bytes(1000))
        del large

before = memory(os.getpid()).rss
for number in range(3):
    threads = [threading.Thread(target=work, args=(10 * number + index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(memory(os.getpid()).rss - before)
"""


def _growth(variables: dict[str, str]) -> float:
    """Return by how many MiB a process with these variables has grown."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", _CHURN], env=plain | variables, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.stem)
def test_with_the_variables_of_its_unit_what_was_large_goes_back_to_the_kernel(unit: Path) -> None:
    assert _growth(environment(unit.stem.removeprefix("ferroscope-"))) < 10.0


def test_without_them_it_does_not() -> None:
    assert _growth({}) > 30.0, "glibc does it by itself now: the variables are not needed any more"
