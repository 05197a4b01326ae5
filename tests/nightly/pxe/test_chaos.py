"""The short version of ``python -m tests.support.pxe.chaos``: each kind of fault, no inspection lost."""

from __future__ import annotations

from pathlib import Path

from tests.support.pxe.chaos import Chaos, plan
from tests.support.pxe.site import Site

KINDS = ("kill", "freeze", "clock", "cut", "stop")


def test_one_pxe_filter_at_a_time_and_nobody_is_lost_whatever_befalls_the_host_that_is_open(
    tmp_path: Path, postgresql_url: str
) -> None:
    with Site(tmp_path, postgresql_url, plan("fast")) as site:
        outcome = Chaos(site, profile="fast", seed=1, machines=6, at_once=3).storm(KINDS, calm=0.5)
    print("\n".join(outcome.lines()))
    assert outcome.violations == []
    assert [fault.kind for fault in outcome.faults] == list(KINDS)
    # Every fault but a clock step interrupts service. The same host may become the leader again.
    assert [fault.dark > 0.4 for fault in outcome.faults] == [kind != "clock" for kind in KINDS]
    assert outcome.tally.inspections > 6
    assert outcome.answers > 100
    # From the fault: the kernel closes the filter within the time to live of the lease, and the next opens soon after.
    gone = [fault for fault in outcome.faults if fault.fail_over]
    assert max(fault.closed for fault in gone) < 3.0, [fault.summary() for fault in gone]
    assert max(fault.reopened or 99.0 for fault in gone) < 8.0
