"""No test asserts how long something took: it waits for a condition, counts, or gives the code a clock of its own."""

from __future__ import annotations

import textwrap
from typing import Final

import pytest

from tests import ROOT
from tests.support import clocks

# Comparisons of moments that two processes have noted: which was first, by a limit that the code under test was given.
_ORDER: Final = {
    "tests/api/test_status.py: test_members_are_shown_with_their_loops_and_ages",
    "tests/system/service/test_failover_process.py: _free",
    "tests/system/examples/test_lease_run.py: test_never_two_commands_run_whatever_happens_to_their_leaders",
}


def test_no_test_asserts_elapsed_time() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 500
    found = {
        f"{path.relative_to(ROOT)}: {name}": line
        for path in files
        if "simulation" not in path.parts  # its clock is simulated
        for line, name in clocks.found(path.read_text())
    }
    wrong = [f"{place}, line {line}" for place, line in found.items() if place not in _ORDER]
    assert wrong == [], "measure it in bench/, or assert what it stands for"
    assert found.keys() >= _ORDER, "what is no longer there needs no exception"


@pytest.mark.parametrize(
    "body",
    [
        "began = time.monotonic()\nact()\nassert time.monotonic() - began < 5",
        "began = time.perf_counter()\nact()\ntook = time.perf_counter() - began\nassert took < 1.0",
        "began, other = time.monotonic(), 1\nact()\nspent = time.monotonic() - began\nassert spent == approx(1)",
        "began = time.monotonic()\nact()\nassert time.monotonic() < began + 5",
        "end = time.monotonic()\nassert 0.2 <= end - answer.asked",
        "one = time.process_time()\nratio = (time.process_time() - one) / 7\nassert ratio < 2",
        "times = []\none = time.thread_time()\ntimes.append(time.thread_time() - one)\nassert max(times) < 3",
        "began = time.time_ns()\nif (gone := time.time_ns() - began):\n    assert gone < 5",
        "began = monotonic()\nassert monotonic() - began < 5",
        "struck = time.monotonic()\nassert answer.asked - struck < 3.5",
        "elapsed = act()\nassert elapsed < 3",
        "began = time.clock_gettime(time.CLOCK_BOOTTIME)\nassert time.clock_gettime(7) - began < 1",
    ],
)
def test_planted_ones_are_found(body: str) -> None:
    source = "import time\nfrom time import monotonic\n\ndef test_one():\n" + textwrap.indent(body, "    ")
    (line,) = {line for line, _ in clocks.found(source)}
    assert source.splitlines()[line - 1].strip().startswith("assert")


@pytest.mark.parametrize(
    "body",
    [
        "struck = time.monotonic()\nassert prober.since(struck) == []",
        "before = time.time()\nassert before <= status.time <= time.time()",
        "began = time.monotonic()\nact()\nprint(time.monotonic() - began)",
        "assert len(found) - 1 == 3",
        "clock.now += 5\nassert clock.now - 5 == 1000.0",
    ],
)
def test_order_reports_and_clocks_of_the_tests_own_are_not(body: str) -> None:
    assert clocks.found("import time\n\ndef test_one():\n" + textwrap.indent(body, "    ")) == []
