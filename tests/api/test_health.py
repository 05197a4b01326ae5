"""What the health check says of a database that can be read and not written."""

from __future__ import annotations

import sqlite3

from sqlalchemy import make_url

from ferroscope.config.options import DatabaseSettings
from tests.api.service import Service


def test_a_call_that_could_not_be_written_fails_the_strict_health_check_until_one_is(sqlite_url: str) -> None:
    service = Service(sqlite_url, sections={"database": DatabaseSettings(connection=sqlite_url, busy_timeout=0.1)})
    other = sqlite3.connect(str(make_url(sqlite_url).database), isolation_level=None)
    try:
        assert service.bare_metal.get("/healthcheck?write=true").status_code == 200
        other.execute("BEGIN IMMEDIATE")
        refused = service.bare_metal.post("/v1/nodes", {"driver": "sim"})
        assert (refused.status_code, "locked" in refused.text) == (503, True)
        assert service.bare_metal.get("/v1/nodes").status_code == 200
        first = service.bare_metal.get("/v1/status").json["problems"][0]
        assert (first["code"], first["verdict"]) == ("database-locked", "wrong")
        answer = service.bare_metal.get("/healthcheck?write=true")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert service.bare_metal.get("/healthcheck").status_code == 200
        other.execute("COMMIT")
        assert service.bare_metal.post("/v1/nodes", {"driver": "sim"}).status_code == 201
        assert service.bare_metal.get("/healthcheck?write=true").status_code == 200
    finally:
        other.close()


def test_health_checks_write_nothing(sqlite_url: str) -> None:
    service = Service(sqlite_url)
    other = sqlite3.connect(str(make_url(sqlite_url).database), isolation_level=None)
    try:
        before = other.execute("PRAGMA data_version").fetchone()
        for _ in range(20):
            assert service.bare_metal.get("/healthcheck?write=true").status_code == 200
        assert other.execute("PRAGMA data_version").fetchone() == before
        service.enrol()
        assert other.execute("PRAGMA data_version").fetchone() != before
    finally:
        other.close()


def test_a_refused_call_says_nothing_of_the_database(service: Service) -> None:
    assert service.bare_metal.post("/v1/nodes", {"driver": 7}).status_code == 400
    assert service.bare_metal.get("/healthcheck?write=yes").status_code in (200, 400)
    assert service.bare_metal.get("/healthcheck?write=true").status_code == 200
