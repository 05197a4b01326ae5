"""A new field of a node is a line of ``core.node`` and a migration: everything else follows from these two files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ferroscope
import ferroscope_client
from tests import ROOT

PACKAGES = [Path(package.__file__).parent for package in (ferroscope, ferroscope_client)]

LINE = """\
    site: Annotated[
        str | None, NodeField(since=90, length=64, settable=True, filters=91)
    ] = None
    fragile: Annotated[bool, NodeField(since=90, settable=True, filters=90, absent=True)] = False
"""
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = {before!r}
branch_labels = None
depends_on = None

def upgrade():
    op.add_column("nodes", sa.Column("site", sa.String(64)))
    op.add_column("nodes", sa.Column("fragile", sa.Boolean(), nullable=False, server_default=sa.false()))
"""
ATTRIBUTE = "    rack: Annotated[str | None, NodeField(since=92, length=8, settable=True, filters=92)] = None\n"

# What the API, the database, rules and the screen make of the new fields.
PLAY = """
import sys
import pytest
import ferroscope
from ferroscope.db import migrate
from ferroscope.db.engine import build_engine
from ferroscope.api.http import openapi
from ferroscope.api.routes import ROUTES
from ferroscope_client.cli.node import show as look
from ferroscope.config.options import DatabaseSettings
from ferroscope.core.node_changes import three_way
from ferroscope.core.model import Node
from ferroscope.rules import writes
from ferroscope.rules.data import RuleError
from msgspec.structs import replace
from tests.store.sql.test_schema import declare, described
from tests.api.service import Service

def create_declared(engine):
    with engine.begin() as connection:
        declare(connection)

assert ferroscope.__file__.startswith(sys.argv[1]), ferroscope.__file__
for number, build in enumerate((migrate.upgrade, create_declared)):
    engine = build_engine(DatabaseSettings(connection=f"sqlite:///{sys.argv[1]}/{number}.db"))
    build(engine)
    with engine.connect() as connection:
        found = described(connection)
    engine.dispose()
    assert number == 0 or found == before
    before = found

service = Service(f"sqlite:///{sys.argv[1]}/0.db")
api = service.bare_metal
one = service.enrol(name="one", site="north", fragile="yes", rack="r1")
two = service.enrol(name="two", site="south")
shown = api.get("/v1/nodes/one").json
assert (shown["site"], shown["fragile"], shown["rack"]) == ("north", True, "r1")
assert "site" not in api.get("/v1/nodes/one", version="1.89").json
assert api.get("/v1/nodes?fields=site", version="1.89").status_code == 406

def listed(query, **more):
    return [node["name"] for node in api.get(f"/v1/nodes?{query}", **more).json["nodes"]]

assert listed("site=south") == ["two"] and listed("fragile=true") == ["one"] and listed("rack=r1") == ["one"]
assert listed("sort_key=site&sort_dir=desc") == ["two", "one"]
assert api.get("/v1/nodes?site=south", version="1.90").status_code == 406
assert listed("sort_key=fragile") == ["two", "one"] and listed("sort_key=rack") == ["two", "one"]
change = {"op": "replace", "path": "/site", "value": "west"}
assert api.patch("/v1/nodes/one", change).json["site"] == "west"
assert api.patch("/v1/nodes/one", change, version="1.89").status_code == 406
assert api.patch("/v1/nodes/one", {**change, "value": "x" * 65}).status_code == 400
assert api.patch("/v1/nodes/one", {"op": "remove", "path": "/fragile"}).json["fragile"] is False
assert api.post("/v1/nodes", {"driver": "sim", "rack": "x" * 9}).status_code == 400

node = service.node(one)
writes.set_field(node, "site", "east", writes.NODE_FIELDS)
writes.set_field(node, "fragile", "on", writes.NODE_FIELDS)
writes.set_field(node, "rack", None, writes.NODE_FIELDS)
assert (node.site, node.fragile, node.attributes) == ("east", True, {})
assert writes.empty("fragile") is False
with pytest.raises(RuleError):
    writes.set_field(node, "site", 7, writes.NODE_FIELDS)
merged = three_way(service.node(one), node, replace(service.node(one), owner="me"))
assert (merged.site, merged.owner) == ("east", "me")
assert look._title("site") == "Site" and "site" in look._OTHERS

schemas = openapi.document(ROUTES)["components"]["schemas"]
assert schemas["NodeCreate"]["properties"]["site"]["anyOf"][0]["maxLength"] == 64
assert {"site", "fragile", "rack"} <= set(schemas["NodeView"]["properties"])
service.close()
"""


def test_a_new_field_needs_its_line_and_a_migration(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    declared = tmp_path / "ferroscope_client" / "core" / "node.py"
    text = declared.read_text()
    for before, line in (("    state: Annotated", LINE), ("    raid_interface: Annotated", ATTRIBUTE)):
        assert text.count(before) == 1
        text = text.replace(before, line + before)
    declared.write_text(text)
    versions = tmp_path / "ferroscope" / "db" / "migrations" / "versions"
    newest = max(path.name for path in versions.glob("[0-9]*.py")).partition("_")[0]
    (versions / "9999_site.py").write_text(MIGRATION.format(before=newest))
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
