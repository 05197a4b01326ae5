"""What a process holds after large blocks have come and gone on many threads, as request bodies do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

# Each thread frees what is large and keeps something small from the same time.
_CHURN: Final = """
import os, random, threading
from bench.usage import memory
from ferroscope.runtime.allocator import restrain

print(restrain())
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


def _churn(**variables: str) -> tuple[str, float]:
    """Return whether the limits were set, and by how many MiB the process has grown."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", _CHURN], env=plain | variables, capture_output=True, text=True, check=True
    )
    said, grown = done.stdout.split()
    return said, float(grown)


def test_what_was_large_goes_back_to_the_kernel() -> None:
    said, grown = _churn()
    assert said == "True"
    assert grown < 10.0


def test_whoever_starts_the_process_may_say_otherwise() -> None:
    said, grown = _churn(MALLOC_ARENA_MAX="64")
    assert said == "False"
    assert grown > 30.0, "glibc does it by itself now: the limits are not needed any more"
    assert _churn(GLIBC_TUNABLES="glibc.malloc.arena_max=64")[0] == "False"
