"""``db.records.Remediations`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError, LeaseLostError
from ferroscope.core.remediation import Phase, Proof, Remediation, Sighting
from tests.store.conftest import Adapter
from tests.support import examples


def _remediation(cluster: str, node: str = "n1", started_at: float = 1.5) -> Remediation:
    return Remediation(uuid=examples.uuid(), cluster=cluster, node=node, node_uid="u", started_at=started_at)


def test_a_remediation_is_saved_whole_and_a_node_has_one_at_a_time(adapter: Adapter) -> None:
    cluster = examples.uuid()
    first = _remediation(cluster)
    adapter.write(lambda tx: tx.remediations.save(first))
    with pytest.raises(ConflictError):
        adapter.write(lambda tx: tx.remediations.save(_remediation(cluster)))
    changed = msgspec.structs.replace(
        first,
        phase=Phase.EVACUATING,
        proof=Proof.POWER_OFF,
        machine=examples.uuid(),
        off_seen=Sighting(at=1.0, renewal="r"),
        terminating={"p": 1.25},
        log=({"at": 1.0, "what": "x", "text": "ü"},),
    )
    adapter.write(lambda tx: tx.remediations.save(changed))
    assert adapter.read(lambda tx: list(tx.remediations.active(cluster))) == [changed]
    assert changed in adapter.read(lambda tx: list(tx.remediations.elsewhere("another")))
    assert changed not in adapter.read(lambda tx: list(tx.remediations.elsewhere(cluster)))
    ended = msgspec.structs.replace(changed, phase=Phase.DONE, ended_at=9.0)
    second = _remediation(cluster, started_at=10.0)
    adapter.write(lambda tx: (tx.remediations.save(ended), tx.remediations.save(second)))
    assert adapter.read(lambda tx: list(tx.remediations.active(cluster))) == [second]
    assert ended not in adapter.read(lambda tx: list(tx.remediations.elsewhere("another")))
    assert adapter.read(lambda tx: list(tx.remediations.newest(cluster, 5))) == [second, ended]
    assert adapter.read(lambda tx: tx.remediations.latest(cluster, "n1")) == second
    assert adapter.read(lambda tx: tx.remediations.latest(cluster, "n2")) is None
    assert adapter.write(lambda tx: tx.remediations.remove_ended(9.5)) >= 1
    assert adapter.read(lambda tx: list(tx.remediations.newest(cluster, 5))) == [second]


def test_a_leader_whose_lease_was_taken_cannot_save(adapter: Adapter) -> None:
    name, cluster = f"failover/{examples.uuid()}", examples.uuid()
    old = adapter.write(lambda tx: tx.leases.acquire(name, "a", 60.0))
    adapter.write(lambda tx: tx.leases.release(old))
    adapter.write(lambda tx: tx.leases.acquire(name, "b", 60.0))
    with pytest.raises(LeaseLostError):
        adapter.write(lambda tx: (tx.leases.hold(old), tx.remediations.save(_remediation(cluster))))
    assert adapter.read(lambda tx: list(tx.remediations.active(cluster))) == []
