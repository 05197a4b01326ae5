"""``ferroscope failover``: its leader is killed or frozen at every phase, and a successor goes on where it was.

Each test ends with what ``witness`` found: nothing was forced without proof, and no pod of a StatefulSet ran twice.
"""

from __future__ import annotations

import pytest

from ferroscope.core.remediation import Phase
from tests.nightly.kubernetes.fleet import Fleet
from tests.support.processes import until

_PHASES = (Phase.DWELL, Phase.POWERING_OFF, Phase.EVACUATING, Phase.EVACUATED, Phase.RETURNING)


@pytest.mark.parametrize("fault", ["killed", "frozen"])
@pytest.mark.parametrize("phase", _PHASES)
def test_a_successor_goes_on_where_the_leader_ended(fleet: Fleet, phase: Phase, fault: str) -> None:
    home = fleet.place("db")
    machine = fleet.machines[home]
    leader, epoch = fleet.a_leader(), fleet.epoch()
    machine.hang()
    assert until(lambda: _reached(fleet, home, phase))
    (leader.kill if fault == "killed" else leader.freeze)()
    try:
        assert until(lambda: fleet.moved("db", home))
        assert until(lambda: machine.on and fleet.cluster.is_ready(home))
        assert until(fleet.settled)
    finally:
        if fault == "frozen":
            leader.thaw()
        else:
            leader.start()
    record = next(one for one in fleet.records() if one.node == home)
    assert record.phase is Phase.DONE
    assert record.epoch > epoch
    leader.wait_ready()


def _reached(fleet: Fleet, home: str, phase: Phase) -> bool:
    return any(one.node == home and one.phase is phase for one in fleet.active())
