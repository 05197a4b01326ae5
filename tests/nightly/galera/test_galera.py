"""On a Galera cluster whose two nodes both accept writes, the fence, the locks and the reads hold across them.

``tests.support.cluster.galera_faults`` does the same under thousands of inspections.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import bindparam, select, update

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.errors import NotFoundError, StoreUnavailableError
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction, schema
from ferroscope.doctor.database_server import cluster as examined
from ferroscope.doctor.database_server import judge_galera
from ferroscope.runtime.backend import open_for_command
from tests.support import examples
from tests.support.cluster.failovers import Client, Found, again, compared, moving
from tests.support.cluster.galera_faults import inspected
from tests.support.cluster.takeovers import race, store
from tests.support.databases import upgrade
from tests.support.galera import Galera, galera
from tests.support.processes import PATIENCE, until

_COUNT = (
    update(schema.leases).where(schema.leases.c.name == bindparam("_name")).values(touched=schema.leases.c.touched + 1)
)
_COUNTED = select(schema.leases.c.touched).where(schema.leases.c.name == bindparam("_name"))
_HEALTHY = {
    "wsrep_cluster_status": "Primary",
    "wsrep_cluster_size": "3",
    "wsrep_osu_method": "TOI",
    "wsrep_max_ws_size": "2147483647",
    "innodb_autoinc_lock_mode": "2",
    "wsrep_provider_options": "evs.suspect_timeout = PT1S; pc.ignore_quorum = false; pc.ignore_sb = false",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Galera]:
    with galera(several_writers=True) as made:
        upgrade(made.url)
        yield made


@pytest.fixture
def stores(nodes: Galera) -> Iterator[tuple[Store, Store]]:
    # On a busy machine, the same side may win again and again.
    first, second = (store(nodes.url_of(node), busy_timeout=PATIENCE) for node in nodes.nodes)
    yield first, second
    first.engine.dispose()
    second.engine.dispose()


def test_an_epoch_that_one_node_has_issued_is_seen_on_a_node_that_lags_behind(
    nodes: Galera, stores: tuple[Store, Store]
) -> None:
    here, there = stores
    lagging = nodes.nodes[1]
    with lagging.session() as session:
        session.execute("FLUSH TABLES WITH READ LOCK")  # from now on it applies nothing
        lease = here.write(lambda tx: tx.leases.acquire("causal", "me", 60.0))
        unlock = threading.Timer(0.5, session.execute, ["UNLOCK TABLES"])
        unlock.start()
        (seen,) = there.read(lambda tx: tx.leases.list("causal"))
        assert seen.epoch == lease.epoch
        there.write(lambda tx: tx.leases.hold(lease))
        unlock.join()  # before its session is closed


def test_an_old_leader_on_one_node_cannot_write_after_a_takeover_on_the_other(nodes: Galera) -> None:
    first, second = map(nodes.url_of, nodes.nodes)
    found = race(first, 25, second)
    assert (found.rounds, found.stale, found.lost) == (25, 0, 0)


def test_a_transaction_that_the_other_node_aborts_is_committed_as_a_whole_or_not_at_all(
    stores: tuple[Store, Store],
) -> None:
    here, there = stores
    contested, *own = here.write(lambda tx: [tx.leases.acquire(f"whole/{name}", "me", 600.0) for name in range(3)])
    acknowledged, stop = 0, threading.Event()

    def conflict() -> None:
        while not stop.wait(0.002):
            there.write(lambda tx: tx.leases.hold(contested))

    def work(tx: Transaction) -> None:
        tx.leases.hold(contested)
        for lease in own:
            tx.ask(_COUNT, {"_name": lease.name})  # sent with COMMIT

    rivals = [threading.Thread(target=conflict) for _ in range(2)]
    for rival in rivals:
        rival.start()
    try:
        # Sent as one text, 1 of 400 is committed in part or not at all (MariaDB 10.11).
        for acknowledged in range(1, 4001):  # noqa: B007
            here.write(work)
    finally:
        stop.set()
        for rival in rivals:
            rival.join()
    counted = here.read(lambda tx: [tx.run(_COUNTED, {"_name": lease.name}).scalars()[0] for lease in own])
    assert counted == [acknowledged, acknowledged]


def test_a_node_that_one_side_locks_and_the_other_removes_leaves_nothing_behind(
    stores: tuple[Store, Store],
) -> None:
    here, there = stores
    node = examples.node(name="contested")
    here.write(lambda tx: tx.nodes.add(node))
    removed, added = threading.Event(), threading.Event()

    def remove(tx: Transaction) -> None:
        tx.nodes.remove(node.uuid)
        assert tx.macs.newest() >= 0  # the answer of a statement: what is buffered was sent before it
        removed.set()
        assert added.wait(PATIENCE)

    remover = threading.Thread(target=lambda: there.write(remove))
    remover.start()
    assert removed.wait(PATIENCE)

    def add(tx: Transaction) -> Node:
        locked = tx.nodes.get(node.uuid, lock=True)
        tx.ports.add([examples.port(node)])
        return locked

    try:
        here.write(add)
    except NotFoundError:
        pass
    finally:
        added.set()
        remover.join()
    orphans = "SELECT address FROM ports WHERE node NOT IN (SELECT uuid FROM nodes)"
    with here.engine.connect() as connection:
        assert connection.exec_driver_sql(orphans).all() == []


def test_doctor_finds_a_cluster_with_the_right_settings(nodes: Galera) -> None:
    settings = Settings(database=DatabaseSettings(connection=nodes.url))
    with open_for_command(settings) as backend:
        assert [(found.code, found.verdict) for found in examined(settings, backend)] == [("galera", "ok")]


def test_a_node_without_the_majority_is_left_for_the_other_one(nodes: Galera) -> None:
    cut = nodes.nodes[1]
    settings = Settings(database=DatabaseSettings(connection=nodes.url_of(cut)))
    with open_for_command(settings) as backend:
        backend.store.write(lambda tx: tx.leases.acquire("majority", "me", -1.0))
        cut.isolate(on=True)
        try:
            assert until(lambda: not cut.is_ready())
            with pytest.raises(StoreUnavailableError, match="1047"):
                backend.store.write(lambda tx: tx.leases.acquire("majority", "me", -1.0))
        finally:
            cut.isolate(on=False)
        nodes.wait_ready()
        again(lambda: backend.store.write(lambda tx: tx.leases.acquire("majority", "me", -1.0)))


def test_nothing_is_lost_and_no_epoch_is_issued_twice_when_a_node_is_killed_under_load(nodes: Galera) -> None:
    stop = threading.Event()
    clients = [Client(number, nodes.url, stop) for number in range(4)]
    for client in clients:
        client.start()
    moving(clients)
    assert until(lambda: all(len(client.epochs) > 5 for client in clients))
    nodes.nodes[1].kill()
    moving(clients)
    assert until(lambda: all(len(client.epochs) > 10 for client in clients))
    stop.set()
    for client in clients:
        client.join(PATIENCE)
    found: Found = compared(clients)
    for client in clients:
        client.backend.close()
    assert found.acknowledged > 40
    assert found.epochs > 40
    assert (found.lost, found.doubled, found.reported) == (0, 0, 0)


@pytest.mark.parametrize("several_writers", [False, True])
def test_inspections_survive_the_kill_and_the_return_of_nodes(several_writers: bool, tmp_path: Path) -> None:
    with galera(several_writers=several_writers) as cluster:
        upgrade(cluster.url)
        outcome = inspected(cluster, tmp_path, machines=30, inspections=200, faults=4, seed=3)
    assert outcome.audit.violations == []
    assert (outcome.found.lost, outcome.found.doubled) == (0, 0)
    assert sum(outcome.faults.values()) == 4


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, None),
        ({"wsrep_cluster_status": "non-Primary"}, True),
        ({"innodb_autoinc_lock_mode": "1"}, True),
        ({"wsrep_osu_method": "RSU"}, True),
        ({"wsrep_max_ws_size": "1048576"}, True),
        ({"wsrep_provider_options": "evs.suspect_timeout = PT1S; pc.ignore_sb = true"}, True),
        ({"wsrep_provider_options": "evs.suspect_timeout = PT5S"}, False),
        ({"wsrep_cluster_size": "2"}, False),
    ],
)
def test_settings_that_endanger_data_are_wrong_and_others_a_note(changed: dict[str, str], wrong: bool | None) -> None:
    assert [one.wrong for one in judge_galera(_HEALTHY | changed, [], 6.0)] == ([] if wrong is None else [wrong])


def test_a_table_without_a_primary_key_is_wrong() -> None:
    (found,) = judge_galera(_HEALTHY, ["notes"], 6.0)
    assert found.wrong
    assert "notes" in found.what
