"""PostgreSQL fails over: nothing acknowledged is lost, and what an asynchronous standby lacked is reported.

The servers, their replication and the promotion are real. ``tests.support.cluster.failovers`` does this a hundred times
under load.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from ferroscope.config.options import DatabaseSettings, LeaseSettings, Settings
from ferroscope.contracts.errors import OutcomeUnknownError, StoreUnavailableError
from ferroscope.core.model import LeaseClaim
from ferroscope.doctor.database_server import cluster
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.cluster.failovers import Failovers, again
from tests.support.databases import upgrade
from tests.support.postgresql_pair import Pair, pair
from tests.support.processes import until


@pytest.fixture
def asynchronous() -> Iterator[Pair]:
    with pair(synchronous=False) as servers:
        upgrade(servers.url)
        yield servers


@pytest.fixture(scope="module")
def synchronous() -> Iterator[Pair]:
    with pair() as servers:
        upgrade(servers.url)
        yield servers


def opened(servers: Pair, *, only: int = 0) -> Backend:
    """Return a process's connections to both servers, or to the one at the port ``only``."""
    url = f"postgresql://ferroscope@127.0.0.1:{only}/ferroscope" if only else servers.url
    settings = Settings(
        database=DatabaseSettings(connection=url, statement_timeout=2.0), lease=LeaseSettings(profile="fast")
    )
    return open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)


def acquired(backend: Backend, name: str, seconds: float = 60.0) -> LeaseClaim:
    return backend.store.write(lambda tx: tx.leases.acquire(name, "me", seconds))


def cut_replication(servers: Pair) -> None:
    """From now on the standby gets nothing: it is as far behind as an asynchronous one may be."""
    servers.standby.run("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
    assert until(lambda: servers.primary.query("SELECT count(*) FROM pg_stat_replication") == 0)


def cancel_waiting_commit(servers: Pair) -> None:
    """Do what an operator does to a commit that hangs because the standby is gone."""
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    assert until(lambda: servers.primary.query(cancel) is True)


def test_a_commit_that_the_synchronous_standby_has_not_confirmed_is_not_acknowledged(synchronous: Pair) -> None:
    with closing(opened(synchronous)) as backend:
        acquired(backend, "before")
        synchronous.standby.freeze()
        impatient = threading.Thread(target=cancel_waiting_commit, args=[synchronous])
        impatient.start()
        # The server says that it has committed; it has, but a fail-over would discard that.
        with pytest.raises(OutcomeUnknownError, match="has not confirmed"):
            backend.store.write(lambda tx: tx.nodes.add(examples.node(name="unconfirmed")))
        impatient.join()
        synchronous.standby.thaw()
        again(lambda: acquired(backend, "after"))


def test_no_acknowledged_write_is_lost_and_no_epoch_is_issued_twice_over_fail_overs(
    synchronous: Pair,
) -> None:
    found = Failovers(synchronous, writers=4).run(2)
    assert found.acknowledged > 50
    assert found.epochs > 20
    assert (found.lost, found.doubled, found.reported) == (0, 0, 0)


def test_commits_and_epochs_that_an_asynchronous_standby_lacks_are_reported(asynchronous: Pair) -> None:
    with closing(opened(asynchronous)) as backend, closing(opened(asynchronous)) as other:
        first = acquired(backend, "backup", -1.0)
        assert until(lambda: asynchronous.standby.query("SELECT pg_is_in_recovery()") is True)
        position = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), replay_lsn) FROM pg_stat_replication"
        assert until(lambda: asynchronous.primary.query(position) == 0)
        acquired(other, "unrelated")
        assert until(lambda: asynchronous.primary.query(position) == 0)
        cut_replication(asynchronous)
        second, third = acquired(backend, "backup", -1.0), acquired(backend, "backup", -1.0)
        assert [second.epoch, third.epoch] == [first.epoch + 1, first.epoch + 2]
        asynchronous.fail_over()

        def succeed() -> None:
            lease = acquired(backend, "backup", -1.0)
            assert lease.epoch == third.epoch + 1  # and not second.epoch, which the database would issue

        again(succeed)
        again(lambda: other.store.read(lambda tx: tx.now))
        proofs = backend.memory.proofs()
        assert any("timeline" in what for what in proofs)
        assert any("backup" in what for what in proofs)
        # All that this process had written had reached the standby.
        assert other.memory.proofs() == []


def test_doctor_says_whether_a_fail_over_can_lose_commits(synchronous: Pair) -> None:
    if synchronous.standby.process is None:  # an earlier test has failed over
        synchronous.replicate()
    with closing(opened(synchronous)) as backend:
        assert [(found.code, found.verdict) for found in cluster(Settings(), backend)] == [("standby", "ok")]
        synchronous.primary.run("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        assert until(lambda: [found.verdict for found in cluster(Settings(), backend)] == ["note"])


def test_an_old_primary_that_is_still_running_is_not_used(asynchronous: Pair) -> None:
    old = asynchronous.primary
    with closing(opened(asynchronous, only=old.port)) as backend:
        acquired(backend, "before")
        asynchronous.promote()  # nobody has stopped the other one, which accepts writes, too
        backend.memory.connected(2, None)  # what this process knows once it has been at the new one
        old.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ferroscope'")
        with pytest.raises(StoreUnavailableError, match="old primary"):
            acquired(backend, "after")
        assert old.query("SELECT count(*) FROM leases WHERE name = 'after'", "ferroscope") == 0
