"""``ferroscope import inspector``, from databases that ironic-inspector 12.5.0 itself has made and filled."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope_client.cli.main import main
from ferroscope_client.core.states import Provision, State
from tests.api.service import Service
from tests.support import databases
from tests.support.inspector import (
    CANCELED,
    DATA,
    FAILED,
    FINISHED,
    PATH_NOT_SUPPORTED,
    RULE,
    UNKNOWN,
    WAITING,
    configure,
    fill,
    filled_sqlite,
)


class Site:
    """A service that has four of the five nodes, and the configuration file of an ironic-inspector."""

    def __init__(self, url: str, source: str, conf: Path) -> None:
        self.url = url
        self.service = Service(url)
        self.conf = conf
        configure(source, conf)
        for uuid in (FINISHED, CANCELED, WAITING, FAILED):
            node = Node(uuid=uuid, driver="fake-hardware", provision_state=Provision.MANAGEABLE)
            self.service.store.write(lambda tx, node=node: tx.nodes.add(node))  # type: ignore[misc]

    def run(self, *options: str, source: str | None = None) -> dict[str, Any]:
        """Run the command and return its report."""
        command = ["import", "inspector", source or str(self.conf), "--database", self.url, "-o", "json", *options]
        done = CliRunner().invoke(main, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def snapshot(self) -> Any:
        """Return everything that an import may change."""
        tables = ("nodes", "ports", "inspections", "inspection_data", "rules", "search_index", "journal")
        with self.service.backend.engine.connect() as connection:
            return {name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")))) for name in tables}

    def node(self, uuid: str) -> Node:
        return self.service.node(uuid)


@pytest.fixture
def sqlite_site(sqlite_url: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(sqlite_url, f"sqlite:///{filled_sqlite(tmp_path)}", tmp_path / "inspector.conf")
    yield made
    made.service.close()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Give a site on each of the databases in turn; that of ironic-inspector is of the same kind."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_site")
        return
    url = request.getfixturevalue(f"{request.param}_url")
    with databases.fresh(request.getfixturevalue(f"shared_{request.param}"), migrated=False) as source:
        made = Site(url, source, tmp_path / "inspector.conf")
        fill(made.conf)
        yield made
        made.service.close()


def test_everything_is_imported_once_and_can_be_rolled_back(site: Site) -> None:
    before = site.snapshot()
    planned = site.run("--dry-run")
    assert site.snapshot() == before
    report = site.run()
    assert (report["counts"], report["items"]) == (planned["counts"], planned["items"])
    results = {item["uuid"]: item["result"] for item in report["items"]}
    assert results == {
        FINISHED: "imported",
        CANCELED: "imported",
        FAILED: "imported",
        WAITING: "in progress",
        UNKNOWN: "unknown",
        RULE: "imported",
        PATH_NOT_SUPPORTED: "skipped",
    }
    _is_all_there(site)
    imported = site.snapshot()
    again = {item["uuid"]: item["result"] for item in site.run()["items"]}
    assert {again[uuid] for uuid in (FINISHED, CANCELED, FAILED, RULE)} == {"already imported"}
    assert site.snapshot() == imported
    undone = site.run("--rollback")["counts"]
    assert undone == {"nodes rolled back": 3, "rules rolled back": 1}
    after = site.snapshot()
    for table in ("ports", "inspections", "inspection_data", "rules", "search_index", "journal"):
        assert after[table] == before[table], table
    node = site.node(FINISHED)
    assert (node.state, node.inspection, node.hardware, node.internal) == (State.NONE, None, {}, {})
    assert site.run("--rollback")["items"] == []
    assert site.run()["counts"] == report["counts"]


def _is_all_there(site: Site) -> None:
    service = site.service
    theirs = {name: json.loads((DATA / f"{name}.json").read_text()) for name in ("processed", "unprocessed")}
    status = service.introspection.get(f"/v1/introspection/{FINISHED}").json
    assert (status["state"], status["finished"], status["error"]) == ("finished", True, None)
    data = service.introspection.get(f"/v1/introspection/{FINISHED}/data").json
    assert {key: data[key] for key in theirs["processed"]} == theirs["processed"]
    unprocessed = service.introspection.get(f"/v1/introspection/{FINISHED}/data/unprocessed").json
    assert unprocessed == theirs["unprocessed"]
    assert site.node(FINISHED).hardware
    assert service.store.read(lambda tx: tx.search_index.of(FINISHED))
    canceled = service.introspection.get(f"/v1/introspection/{CANCELED}").json
    assert (canceled["state"], canceled["error"]) == ("error", "Canceled by operator")
    failed = service.introspection.get(f"/v1/introspection/{FAILED}").json
    assert "Failed to power on the node" in failed["error"]
    assert service.introspection.get(f"/v1/introspection/{WAITING}").status_code == 404
    rule = service.introspection.get(f"/v1/rules/{RULE}").json
    assert (rule["description"], rule["scope"]) == ("large machines", "rack 1")
    assert rule["conditions"] == [
        {"op": "ge", "field": "memory_mb", "value": 12288, "multiple": "any", "invert": False},
        {
            "op": "contains",
            "field": "inventory.interfaces[*].ipv4_address",
            "value": "^127",
            "multiple": "all",
            "invert": True,
        },
    ]
    assert rule["actions"] == [{"action": "set-attribute", "path": "/extra/size", "value": "{data[memory_mb]}"}]


def result_of(report: dict[str, Any], uuid: str) -> tuple[str, str]:
    (item,) = (one for one in report["items"] if one["uuid"] == uuid)
    return item["result"], item["detail"]


def test_unknown_nodes_are_created_if_asked_with_the_ports_that_are_free(sqlite_site: Site) -> None:
    site = sqlite_site
    site.service.bare_metal.post("/v1/ports", {"node_uuid": CANCELED, "address": "12:12:21:12:21:12"})
    report = site.run("--create", "manageable", "--driver", "fake-hardware")
    assert result_of(report, UNKNOWN)[0] == "created"
    node = site.node(UNKNOWN)
    assert (node.driver, node.provision_state, node.state) == ("fake-hardware", Provision.MANAGEABLE, State.FINISHED)
    ports = site.service.store.read(lambda tx: tx.ports.list(Query(filters={"node": UNKNOWN})))
    assert [port.address for port in ports] == ["10:22:33:44:66:66"]
    assert result_of(site.run("--create", "enroll", "--driver", "fake-hardware"), UNKNOWN)[0] == "already imported"
    assert result_of(site.run("--rollback"), UNKNOWN) == ("rolled back", "the node is deleted")
    assert site.service.bare_metal.get(f"/v1/nodes/{UNKNOWN}").status_code == 404


def test_what_was_changed_since_is_not_rolled_back(sqlite_site: Site) -> None:
    site = sqlite_site
    site.run("--create", "enroll", "--driver", "fake-hardware")
    for uuid in (FINISHED, UNKNOWN):
        patch = {"op": "add", "path": "/extra/rack", "value": "7"}
        assert site.service.bare_metal.patch(f"/v1/nodes/{uuid}", patch).status_code == 200
    rule = site.service.introspection.get(f"/v1/rules/{RULE}").json | {"description": "other"}
    assert site.service.introspection.put(f"/v1/rules/{RULE}", rule).status_code == 200
    undone = site.run("--rollback")
    assert {result_of(undone, uuid)[0] for uuid in (FINISHED, UNKNOWN, RULE)} == {"changed since"}
    assert result_of(undone, CANCELED)[0] == "rolled back"
    assert site.node(FINISHED).extra == {"rack": "7"}
    assert site.service.introspection.get(f"/v1/introspection/{FINISHED}/data").status_code == 200
    assert result_of(site.run(), RULE) == ("skipped", "a rule with this UUID exists and differs")


def test_a_newer_inspection_here_stays_the_current_one(sqlite_site: Site) -> None:
    site = sqlite_site
    body = site.service.inspect(FINISHED)
    before = site.node(FINISHED)
    assert "newer one here" in result_of(site.run(), FINISHED)[1]
    assert site.node(FINISHED) == before
    assert site.service.introspection.get(f"/v1/introspection/{FINISHED}/data/unprocessed").json == body
    mine = Query(filters={"node": FINISHED})
    assert len(site.service.store.read(lambda tx: tx.inspections.list(mine))) == 2
    assert result_of(site.run("--rollback"), FINISHED)[0] == "rolled back"
    assert [one.uuid for one in site.service.store.read(lambda tx: tx.inspections.list(mine))] == [before.inspection]


def test_an_inspection_in_progress_here_goes_on(sqlite_site: Site) -> None:
    site = sqlite_site
    site.service.wait(FINISHED)
    before = site.node(FINISHED)
    site.run()
    assert site.node(FINISHED) == before


def test_a_rollback_restores_what_an_earlier_inspection_has_found(sqlite_site: Site) -> None:
    site, source = sqlite_site, sqlite3.connect(sqlite_site.conf.with_name("inspector.db"))
    site.service.inspect(FINISHED)
    learned = {"cpu": {"count": 1, "architecture": "arm"}, "interfaces": []}
    site.service.learn(FINISHED, learned)
    before = site.node(FINISHED)
    source.execute("UPDATE nodes SET started_at = '2099-01-01 00:00:00.5', finished_at = '2099-01-01 00:00:07.25'")
    source.commit()
    site.run()
    imported = site.node(FINISHED)
    assert imported.inspection != before.inspection
    assert imported.hardware != before.hardware
    site.run("--rollback")
    after = site.node(FINISHED)
    for name in ("state", "inspection", "inspection_started_at", "hardware", "search_digest", "internal"):
        assert getattr(after, name) == getattr(before, name)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("UPDATE introspection_data SET data = '{}'", "its data is invalid"),
        (
            "UPDATE introspection_data SET data = '{\"inventory\": \"' || hex(zeroblob(2000000)) || '\"}'",
            "max_body_size",
        ),
        ("UPDATE nodes SET state = 'enrolling'", "unexpected state enrolling"),
    ],
)
def test_what_cannot_be_imported_is_reported_and_the_rest_is_imported(
    sqlite_site: Site, change: str, expected: str
) -> None:
    source = sqlite3.connect(sqlite_site.conf.with_name("inspector.db"))
    source.execute(f"{change} WHERE uuid = '{FINISHED}'")
    source.commit()
    report = sqlite_site.run()
    assert result_of(report, FINISHED)[0] == "skipped"
    assert expected in result_of(report, FINISHED)[1]
    assert result_of(report, CANCELED)[0] == "imported"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("", "has no [database] connection"),
        ("[database]\nconnection = sqlite:///x\n[processing]\nstore_data = swift\n", "no section [swift]"),
        ("[database]\nconnection = sqlite:////nowhere/inspector.db\n", "cannot read the database"),
        ("[database]\nconnection = oracle://u:secret@h/x\n", "unsupported database"),
        ("no configuration", "cannot read"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_without_its_password(
    sqlite_url: str, tmp_path: Path, conf: str, expected: str
) -> None:
    (tmp_path / "i.conf").write_text(conf)
    command = ["import", "inspector", str(tmp_path / "i.conf"), "--database", sqlite_url]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    assert expected in done.output
    assert "secret" not in done.output


def test_another_schema_is_refused(sqlite_site: Site) -> None:
    source = sqlite3.connect(sqlite_site.conf.with_name("inspector.db"))
    source.execute("UPDATE alembic_version SET version_num = 'bf8dec16023c'")
    source.commit()
    command = ["import", "inspector", str(sqlite_site.conf), "--database", sqlite_site.url]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    assert "ironic-inspector-dbsync upgrade" in done.output
