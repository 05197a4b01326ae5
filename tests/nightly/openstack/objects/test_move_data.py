"""``ferroscope db move-data`` and ``rebuild-search-index``: all data, at once."""

from __future__ import annotations

import threading

import msgspec
from click.testing import CliRunner

from ferroscope.cli.database import db
from ferroscope.config.options import DatabaseSettings, S3Settings, Settings, SwiftSettings
from ferroscope.contracts.remote import ObjectStore
from ferroscope.contracts.store import packed
from ferroscope.contrib.openstack.swift import SwiftStore
from ferroscope.db import Transaction
from ferroscope.runtime.backend import open_for_command
from ferroscope.storage import maintenance
from ferroscope.storage.object_http import RetryPolicy
from ferroscope.storage.s3 import S3Store
from ferroscope.storage.stores import build_archive
from tests.nightly.openstack.objects.conftest import make_bucket, s3_settings, swift_settings
from tests.nightly.openstack.objects.site import ALL, Site
from tests.support.servers import Server


def _moved(settings: Settings, source: str, target: str, advance: maintenance.Advance) -> maintenance.MoveReport:
    with open_for_command(settings) as backend:
        archive = build_archive(settings, backend.store, threading.Event())
        return maintenance.move(backend.store, archive, source, target, advance)


def _rebuilt(settings: Settings) -> maintenance.RebuildReport:
    with open_for_command(settings) as backend:
        archive = build_archive(settings, backend.store, threading.Event())
        return maintenance.rebuild(backend.store, archive, lambda _text: None, lambda _count: None)


def configured(url: str, server: Server) -> Settings:
    """Return the settings of a service that knows both stores."""
    s3 = s3_settings(server)
    make_bucket(s3)
    return Settings(database=DatabaseSettings(connection=url), s3=s3, swift=swift_settings(server))


def test_data_goes_from_store_to_store_and_back(site: Site, shared_swift: Server, sqlite_url: str) -> None:
    settings = configured(sqlite_url, shared_swift)
    site.archive.object_stores = _shelves(settings)
    inspections = site.inspected(12)
    for source, target in (("database", "s3"), ("s3", "swift"), ("swift", "database")):
        done = _moved(settings, source, target, lambda _text: None)
        assert (done.moved, done.skipped, done.error) == (36, 0, "")
        site.check(inspections)
        assert _moved(settings, source, target, lambda _text: None).moved == 0
    assert [site.here(one) for one in inspections] == [sorted(ALL)] * 12


def test_a_move_that_ended_early_goes_on(site: Site, swift_server: Server, sqlite_url: str) -> None:
    settings = configured(sqlite_url, swift_server)
    site.archive.object_stores = _shelves(settings)
    inspections = site.inspected(15)
    done = _moved(settings, "database", "s3", lambda _text: swift_server.kill() if swift_server.pid else None)
    assert done.error
    assert 0 < done.moved < 45
    swift_server.start()
    rest = _moved(settings, "database", "s3", lambda _text: None)
    assert done.moved + rest.moved == 45
    site.check(inspections)


def _shelves(settings: Settings) -> dict[str, ObjectStore]:
    return {
        "s3": S3Store(settings.s3, RetryPolicy(timeout=20.0)),
        "swift": SwiftStore(settings.swift, RetryPolicy(timeout=20.0)),
    }


def test_the_command_says_what_is_missing(sqlite_url: str) -> None:
    result = CliRunner().invoke(db, ["move-data", "--from", "database", "--to", "s3", "--database", sqlite_url])
    assert result.exit_code == 1
    assert "set [s3] endpoint" in result.output
    assert S3Settings() == Settings().s3
    assert SwiftSettings() == Settings().swift


def test_facts_are_derived_anew(site: Site, sqlite_url: str) -> None:
    (one,) = site.inspected(1)
    site.store.write(
        lambda tx: tx.data.save(one.uuid, one.node, packed({"inventory": b'{"memory": {"physical_mb": 64}}'}))
    )

    def point(tx: Transaction) -> None:
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(one.node), inspection=one.uuid))

    site.store.write(point)
    settings = Settings(database=DatabaseSettings(connection=sqlite_url))
    done = _rebuilt(settings)
    assert (done.nodes, done.changed) == (1, 1)
    (row,) = site.store.read(lambda tx: tx.search_index.of(one.node))
    assert row.n1 == 64 * 2**20
    assert _rebuilt(settings).changed == 0
