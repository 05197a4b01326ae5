"""A database is copied to one of another kind and back: nothing is lost, and half a copy is no copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, text, update

from ferroscope.config.options import DatabaseSettings, SecretSettings, Settings
from ferroscope.core.secrets import ENCRYPTED
from ferroscope.core.states import Event
from ferroscope.db import migrate, schema
from ferroscope.db.copying.copy import CopyError
from ferroscope.db.copying.tables import COPIED
from ferroscope.db.prepare import SchemaError, ensure_schema
from ferroscope.secrets.keys import new_key
from ferroscope_client.core.states import State
from tests.api.service import Service, callback_body
from tests.support import databases, examples
from tests.support.copies import PAIRS, connected, copy, dump, fill, killed, version
from tests.support.stores import claim_from

MakeUrl = Callable[..., str]


@pytest.fixture
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeUrl]:
    """Give a function that returns the URL of a new database of a kind; one that is not migrated is empty."""
    with ExitStack() as stack:
        numbers = iter(range(1000))

        def make(kind: str, *, migrated: bool = True) -> str:
            if kind == "sqlite":
                directory = tmp_path / f"database-{next(numbers)}"
                directory.mkdir()
                return databases.sqlite(directory) if migrated else f"sqlite:///{directory / 'empty.db'}"
            server = request.getfixturevalue(f"shared_{kind}")
            return stack.enter_context(databases.fresh(server, migrated=migrated))

        yield make


@pytest.mark.parametrize(("kind", "other_kind"), PAIRS)
def test_a_database_with_odd_values_is_the_same_after_being_copied_there_and_back(
    make_url: MakeUrl, kind: str, other_kind: str
) -> None:
    first = make_url(kind)
    fill(first)
    expected = dump(first)
    there, back = make_url(other_kind, migrated=False), make_url(kind, migrated=False)
    one = copy(first, there)
    other = copy(there, back)
    assert dump(there) == dump(back) == dump(first) == expected
    assert one.tables == other.tables
    assert {table.name: table.rows for table in one.tables} == {name: len(rows) for name, rows in expected.items()}
    assert version(there) == version(back) == migrate.HEAD


def test_inspections_in_progress_continue_on_the_copy(make_url: MakeUrl) -> None:
    first, there = make_url("sqlite"), make_url("postgresql")
    before = Service(first)
    queued, waiting, called, failed, claimed = (before.enrol(name=f"n{number}") for number in range(5))
    mac, other_mac = before.wait(waiting), before.wait(called)
    assert before.call_back(callback_body(other_mac, serial="7")).status_code == 202
    before.wait(failed)
    before.consume()
    before.fail(failed)
    # The callback above was taken off the queue; like a worker that was killed, this one leaves it there.
    for ident in (queued, claimed):
        assert before.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "inspect"}).status_code == 202
    claim = claim_from(before.backend.queue, "dead", 0.0, before.stop)
    assert claim is not None
    before.store.write(lambda tx: tx.members.leave("worker-1"))
    before.close()
    copy(first, there)
    after = Service(there)
    try:
        assert after.node(failed).state is State.ERROR
        assert {request.event for request in after.consume()} == {Event.INSPECT}
        for ident in (queued, claimed):
            assert after.node(ident).state is State.STARTING
            after.step(ident, Event.WAIT)
        assert after.call_back(callback_body(mac)).status_code == 202
        after.finish(waiting)
        after.step(called, Event.CONTINUE)
        after.save_plugin_data(called, {"valid_interfaces": {}})
        after.step(called, Event.FINISH)
        assert {after.node(ident).state for ident in (waiting, called)} == {State.FINISHED}
        inventory = after.bare_metal.get(f"/v1/nodes/{called}/inventory").json["inventory"]
        assert inventory["system_vendor"]["serial_number"] == "7"
    finally:
        after.close()


@pytest.mark.timeout(1200)
def test_a_service_starts_on_a_copy_only_if_it_was_not_killed_in_the_middle(
    make_url: MakeUrl, database_kind: str
) -> None:
    first, there = make_url("sqlite"), make_url(database_kind, migrated=False)
    with connected(first) as connection:
        for number in range(3):
            values = {column.name: f"{number}" for column in schema.rules.columns} | {"sensitive": False}
            numbers = {"priority": number, "created_at": 0.5, "updated_at": 0.5}
            connection.execute(insert(schema.rules), values | numbers)
            connection.execute(insert(schema.mac_changes), {"mac": f"{number}", "at": 0.5})
    ensure_schema(_settings(there), upgrade=True)
    after = kills = 0
    while killed(first, there, after := after + 7):
        kills += 1
        if version(there) == migrate.HEAD:
            # Before it began, or after it had ended, which it could not say any more.
            with connected(there) as connection:
                began = connection.execute(text("SELECT count(*) FROM rules")).scalar()
            assert began in (0, 3)
            if began:
                there = make_url(database_kind)
            continue
        for upgrade in (False, True):
            with pytest.raises(SchemaError, match="incomplete copy"):
                ensure_schema(_settings(there), upgrade=upgrade)
    assert kills > 10
    assert version(there) == migrate.HEAD
    assert dump(there) == dump(first)


def _settings(url: str) -> Settings:
    return Settings(database=DatabaseSettings(connection=url))


def test_of_two_copies_at_once_the_later_one_wins(make_url: MakeUrl, database_kind: str) -> None:
    first, there = make_url("sqlite"), make_url(database_kind)
    fill(first)
    with pytest.raises(CopyError, match="another copy"):
        copy(first, there, stage=_doing("Copying", lambda: copy(first, there)))
    assert version(there) == migrate.HEAD
    assert dump(there) == dump(first)


def _doing(title: str, work: Callable[[], object]) -> Any:
    """Return a stage that does the work once, when the stage of this title has begun."""
    done: list[object] = []

    @contextmanager
    def stage(begun: str, _total: int) -> Iterator[Callable[[int], None]]:
        def advance(_rows: int) -> None:
            if begun == title and not done:
                done.append(begun)
                work()

        yield advance

    return stage


def test_what_is_changed_in_the_destination_meanwhile_is_noticed(make_url: MakeUrl, database_kind: str) -> None:
    first, there = make_url("sqlite"), make_url(database_kind)
    fill(first)

    def tamper() -> None:
        with connected(there) as connection:
            connection.execute(update(schema.rules).values(priority=12))

    def shorten() -> None:
        with connected(there) as connection:
            connection.execute(schema.journal.delete().where(schema.journal.c.severity == "name"))

    for work, table in ((tamper, "rules"), (shorten, "journal")):
        with pytest.raises(CopyError, match=f"table {table} of the destination differs"):
            copy(first, there, stage=_verifying(work))
        with pytest.raises(SchemaError, match="incomplete copy"):
            ensure_schema(_settings(there), upgrade=True)
    copy(first, there)
    assert dump(there) == dump(first)


def _verifying(work: Callable[[], object]) -> Any:
    """Return a stage that does the work before the comparison begins: within its transaction it would see nothing."""

    @contextmanager
    def stage(title: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield lambda _rows: None
        if title == "Copying":
            work()

    return stage


def test_numbers_that_were_used_are_not_used_again(make_url: MakeUrl, database_kind: str) -> None:
    for kind in ("sqlite", "postgresql", "mariadb"):
        first, there = make_url(kind), make_url(database_kind)
        with connected(first) as connection:
            for number in range(3):
                last = connection.execute(insert(schema.mac_changes), {"mac": f"{number}", "at": 0.5})
            connection.execute(schema.mac_changes.delete())
        copy(first, there)
        with connected(there) as connection:
            result = connection.execute(insert(schema.mac_changes), {"mac": "x", "at": 0.5})
            assert result.inserted_primary_key == (last.inserted_primary_key[0] + 1,)


def test_leases_are_not_copied_and_their_epochs_continue(make_url: MakeUrl, database_kind: str) -> None:
    first, there = make_url("sqlite"), make_url(database_kind)
    before, after = Service(first), Service(there)
    for _ in range(5):
        lease = before.store.write(lambda tx: tx.leases.acquire("ours", "me", 60.0))
        before.store.write(lambda tx, lease=lease: tx.leases.release(lease))  # type: ignore[misc]
    held = before.store.write(lambda tx: tx.leases.acquire("ours", "me", 600.0))
    after.store.write(lambda tx: tx.leases.acquire("ours", "doctor", 600.0))
    done = copy(first, there)
    assert [(left.name, left.rows) for left in done.left] == [("leases", 1)]
    again = after.store.write(lambda tx: tx.leases.acquire("ours", "other", 60.0))
    assert again.epoch > held.epoch
    before.close()
    after.close()


def test_the_clock_and_the_members_of_the_source_stay_behind(make_url: MakeUrl) -> None:
    first, there = make_url("sqlite"), make_url("postgresql")
    before = Service(first)
    before.store.write(lambda tx: tx.members.beat(examples.member("gone"), 60.0))
    before.store.write(lambda tx: tx.members.leave("gone"))
    before.close()
    assert [(left.name, left.rows) for left in copy(first, there).left] == [("members", 1)]
    with connected(there) as connection:
        assert not connection.execute(schema.members.select()).all()


def test_a_running_service_is_refused_on_both_sides(make_url: MakeUrl) -> None:
    first, there = make_url("sqlite"), make_url("postgresql")
    for url, side in ((first, "source"), (there, "destination")):
        running = Service(url)
        running.store.write(lambda tx: tx.members.beat(examples.member("m1"), 60.0))
        with pytest.raises(CopyError, match=f"the service is running on the {side}"):
            copy(first, there)
        assert version(there) == migrate.HEAD
        if side == "source":
            assert any("running" in note for note in copy(first, there, dry_run=True).notes)
        running.store.write(lambda tx: tx.members.leave("m1"))
        running.close()
    copy(first, there)


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_service_that_ran_for_a_moment_during_the_copy_is_noticed(
    make_url: MakeUrl, database_kind: str, side: str
) -> None:
    first, there = make_url(database_kind), make_url("sqlite" if side == "source" else database_kind)
    url = first if side == "source" else there

    def run() -> None:
        service = Service(url)
        service.store.write(lambda tx: tx.members.beat(examples.member("m1"), 60.0))
        service.store.write(lambda tx: tx.members.leave("m1"))
        service.close()

    with pytest.raises(CopyError, match=f"a process was started on the {side} during the copy"):
        copy(first, there, stage=_verifying(run))
    assert version(there) != migrate.HEAD


def test_a_database_with_machines_is_never_overwritten(make_url: MakeUrl) -> None:
    first, there = make_url("sqlite"), make_url("postgresql")
    service = Service(there)
    uuid = service.enrol(name="mine")
    for dry_run in (True, False):
        with pytest.raises(CopyError, match="not empty: it has rows in nodes"):
            copy(first, there, dry_run=dry_run)
    assert service.node(uuid).name == "mine"
    service.close()


def test_another_schema_is_refused_on_both_sides(make_url: MakeUrl) -> None:
    first, there = make_url("postgresql"), make_url("sqlite")
    for url, other in ((first, there), (there, first)):
        with connected(url) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        for pair in ((url, other), (other, url)):
            with pytest.raises(SchemaError, match="9999"):
                copy(*pair)
        with connected(url) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": migrate.HEAD})
    copy(first, there)


def test_encrypted_passwords_are_copied_only_where_their_key_is(make_url: MakeUrl, tmp_path: Path) -> None:
    first, there = make_url("sqlite"), make_url("postgresql")
    file = tmp_path / "secrets.key"
    file.touch(0o600)
    file.write_text(new_key())
    secrets = SecretSettings(key_file=str(file))
    before = Service(first, sections={"secrets": secrets})
    uuid = before.enrol(name="a1", driver_info={"redfish_password": "Canary-1"})
    before.close()
    with pytest.raises(CopyError, match="lacks the key"):
        copy(first, there, dry_run=True)
    assert version(there) == migrate.HEAD
    copy(first, there, settings=Settings(secrets=secrets))
    assert "Canary-1" not in "".join(dump(there)["nodes"])
    after = Service(there, sections={"secrets": secrets})
    node = after.node(uuid)
    text = node.driver_info["redfish_password"][ENCRYPTED]
    assert after.backend.keys.decrypt(text, uuid, ("driver_info", "redfish_password")) == "Canary-1"
    after.close()


def test_what_mariadb_takes_for_the_same_name_is_said(make_url: MakeUrl) -> None:
    first, there = make_url("sqlite"), make_url("mariadb")
    with connected(first) as connection:
        for name in ("gpu", "gpu "):
            connection.execute(insert(schema.expectations), {"name": name, "position": 1, "document": "{}"})
    with pytest.raises(CopyError, match="two rows of the source are the same to it"):
        copy(first, there)
    with pytest.raises(SchemaError, match="incomplete copy"):
        ensure_schema(_settings(there), upgrade=False)


def test_a_value_that_is_larger_than_a_packet_of_mariadb_is_refused_before_it_is_sent(make_url: MakeUrl) -> None:
    first, there = make_url("sqlite"), make_url("mariadb")
    with connected(first) as connection:
        values = {"inspection": "i", "part": "logs", "node": "n", "codec": "zlib", "created_at": 0.5}
        connection.execute(insert(schema.inspection_data), values | {"content": bytes(17 << 20)})
    for dry_run in (True, False):
        with pytest.raises(CopyError, match="row i, logs, column content: 17825792 bytes, and max_allowed_packet"):
            copy(first, there, dry_run=dry_run)


def test_nul_becomes_what_the_service_writes_to_postgresql(make_url: MakeUrl) -> None:
    first, there, back = make_url("mariadb"), make_url("postgresql"), make_url("mariadb")
    with connected(first) as connection:
        connection.execute(insert(schema.expectations), {"name": "a", "position": 1, "document": '"\0"'})
    assert any("NUL in 1 text," in note for note in copy(first, there).notes)
    assert copy(there, back).notes == []
    with connected(back) as connection:
        assert connection.execute(schema.expectations.select()).one().document == '"\ufffd"'


def test_all_tables_that_the_schema_has_are_copied_or_left_on_purpose() -> None:
    assert set(schema.metadata.tables.values()) - set(COPIED) == {
        schema.members,
        schema.leases,
        schema.lease_candidates,
        schema.lease_epochs,
        schema.clock_steps,
        schema.counts,
        schema.web_sessions,
    }
