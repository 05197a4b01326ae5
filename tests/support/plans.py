"""How the databases execute each recorded statement where every table that grows has 100,000 rows.

``python -m tests.support.plans FILE...`` fails if one reads more than 1,000 rows of such a table without an index. The
files are what ``pytest --statements FILE`` has recorded.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Boolean, Column, Connection, Double, Integer, LargeBinary, String, Table, Text
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import schema
from ferroscope.db.engine import build_engine
from tests.support import databases
from tests.support.servers import KeeperProcess, Server

ROWS: Final = 100_000
MAX_ROWS_READ: Final = 1_000
GROWING: Final = (
    "nodes", "ports", "inspections", "inspection_data", "objects", "search_index", "journal", "bmc_addresses",
    "callers", "machine_macs", "mac_changes", "requests", "audit", "receipts", "outbox",
)  # fmt: skip
_PAGE: Final = r" LIMIT \S+( OFFSET \S+)?$"
# What reads a whole table on purpose, by why that is well: each is one statement, or those of one function.
WHOLE: Final = {
    "machines, sorted as people do it": r"^SELECT .+ AS \W?key\W?, nodes\.name, nodes\.uuid FROM nodes\b",
    "a page in an order that has no index, because a transition would change it: 0.1 s for 100,000 nodes": (
        rf"^SELECT .+ FROM nodes( WHERE .+)? ORDER BY (?!nodes\.(created_at|uuid) ).+{_PAGE}"
    ),
    "a page of the nodes that match, until it is full": (
        rf"^SELECT .+ FROM nodes WHERE (?!nodes\.created_at).+ ORDER BY nodes\.(created_at|uuid)\b.*{_PAGE}"
    ),
    "a small fleet, or some thousand nodes of a large one": (
        r"^SELECT .+ FROM nodes WHERE (nodes\.last_error IS NOT NULL AND )?nodes\.uuid > \S+ GROUP BY"
    ),
    "all labels": r"^SELECT nodes\.labels, count\(\*\) AS \w+ FROM nodes WHERE nodes\.labels != \S+ (AND .+ )?GROUP BY",
    "all shards": (
        r"^SELECT nodes\.attributes FROM nodes WHERE nodes\.attributes LIKE \S+ ESCAPE '!'$"
        r"|^SELECT count\(\*\) AS \w+ FROM nodes$"
    ),
    "each node is looked for in the attached registry": r"^SELECT nodes\.uuid, nodes\.orphaned_at FROM nodes$",
    "nodes of hundreds of addresses": r" FROM nodes WHERE nodes\.uuid IN \(SELECT \w+\.node FROM .+ IN \((\S+, ){99}",
    "a page of ports with their nodes": r"^SELECT page\.address, nodes\.state FROM \(SELECT .+ LIMIT .+ JOIN nodes ON",
    "the wiring as a table": r"^SELECT search_index\.t6, .+ JOIN nodes .+ ORDER BY search_index\.t6, ",
    "counted ahead": r" GROUP BY search_index\.t[23] HAVING min\(search_index\.node\) < max\(search_index\.node\) ",
    "what a week has changed": r"^SELECT inspections\..+ count\(\*\) OVER .+ WHERE inspections\.finished_at >= ",
    "the newest first, a page": (
        rf"^SELECT .+ FROM (audit|outbox)( WHERE (?!.*(\.node|\.state|user\W?) = ).+)? ORDER BY \w+\.id DESC{_PAGE}"
    ),
    "the queue is short": r"^SELECT requests\.event, count\(\*\) .+ GROUP BY requests\.event ORDER BY requests\.event$",
    "a page, by the key": (
        rf"^SELECT .+ (WHERE .*objects\.key > .+ ORDER BY objects\.key|ORDER BY mac_changes\.seq( DESC)?){_PAGE}"
        r"|^SELECT oldest\.seq FROM \(SELECT mac_changes\.seq .+ ORDER BY mac_changes\.seq LIMIT "
    ),
    "once for each step of the clock": (
        r"^UPDATE (requests SET due_at=\S+ WHERE requests\.due_at - |nodes SET provision_updated_at=CASE)"
    ),
    "only tests look at all that there is": (
        r"^UPDATE requests SET due_at = 4e9|^SELECT \* FROM \w+$|^SELECT count\(\*\) AS \w+ FROM search_index\b"
        r"|^SELECT (nodes|ports|inspections)\..+ FROM (?!.* LIMIT ).+ ORDER BY \w+\.(created|started)_at ASC, \w+\.uuid"
        r"|^SELECT .+ FROM journal( WHERE (0 = 1|\w+\.(severity|uuid|inspection))[^.]*)?( ORDER BY journal\.id ASC)?$"
    ),
}
_NUMBERS: Final = {
    "sqlite": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {}) SELECT {} FROM t",
    "postgresql": "SELECT {1} FROM generate_series(1, {0}) AS t(n)",
    "mysql": "SELECT {1} FROM (SELECT seq AS n FROM seq_1_to_{0}) AS t",
}
# In MariaDB's plan, whose JSON is not always valid: conditions are quoted as they are.
_WHOLE_TABLE: Final = re.compile(
    r'"table_name": "(\w+)",\s*"access_type": "ALL"((?:(?!"table_name").)*?)"r_rows": ([\d.]+)', re.DOTALL
)
_UUID: Final = {
    "sqlite": "printf('%036d', n)", "postgresql": "lpad(CAST(n AS text), 36, '0')", "mysql": "lpad(n, 36, '0')",
}  # fmt: skip
_VALUES: Final = {
    "nodes.state": "CASE WHEN n <= 100 THEN 'waiting' ELSE 'finished' END",
    "nodes.provision_state": "'manageable'",
    "nodes.name": "'node-' || n",
    "inspections.state": "CASE WHEN n <= 100 THEN 'waiting' ELSE 'finished' END",
    "inspections.finished_at": "CASE WHEN n <= 100 THEN NULL ELSE 1700000000.0 + n END",
    "inspection_data.part": "CASE WHEN n <= 50000 THEN 'inventory' ELSE 'logs' END",
    "search_index.kind": "CASE WHEN n <= 30000 THEN 'node' WHEN n <= 60000 THEN 'nic' ELSE 'words' END",
    "search_index.t2": "'x' || n",
    "search_index.t3": "'y' || n",
    "search_index.t6": "'z' || n",
    "outbox.state": "'delivered'",
    "requests.event": "'inspect'",
    "requests.lane": "'bmc'",
    "objects.state": "'stored'",
    "receipts.reply": "'{}'",
}


def fill(connection: Connection) -> None:
    """Add as many rows to each table that grows; those of one number belong together."""
    kind = connection.dialect.name
    for name in GROWING:
        table: Table = schema.metadata.tables[name]
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        values = ", ".join(_value(kind, column) for column in table.columns)
        connection.exec_driver_sql(f"INSERT INTO {name} ({columns}) {_NUMBERS[kind].format(ROWS, values)}")
        if kind != "sqlite":  # which has no statistics in production either
            connection.exec_driver_sql(f"ANALYZE {'TABLE ' if kind == 'mysql' else ''}{name}")


def _value(kind: str, column: Column[Any]) -> str:
    known = _VALUES.get(str(column))
    if known is not None:
        return known
    if isinstance(column.type, String) and column.type.length == 36 and not isinstance(column.type, Text):
        return _UUID[kind] if not column.nullable or column.name == "inspection" else "NULL"
    if column.nullable:
        return "NULL"
    if column.primary_key or column.unique:
        return "n" if isinstance(column.type, Integer) else "'x' || n"
    for type_, value in (
        (Boolean, "false"), (Double, "1700000000.0 + n"), (Integer, "0"), (Text, "'{}'"), (String, "'x'"),
    ):  # fmt: skip
        if isinstance(column.type, type_):
            return value
    assert isinstance(column.type, LargeBinary), column
    return "CAST('' AS bytea)" if kind == "postgresql" else "x''"


def rows_read(connection: Connection, text: str, values: Any) -> Iterator[tuple[str, float]]:
    """Yield the tables that the statement reads without an index, with the number of rows; SQLite says all."""
    tables = {alias: table for table, alias in re.findall(r"(\w+) AS (\w+)", text)}
    given = tuple(values) if isinstance(values, list) else values
    if connection.dialect.name == "postgresql" and isinstance(given, tuple):  # as libpq takes it
        text = re.sub(r"\$(\d+)", r"%(p\1)s", text.replace("%", "%%"))
        given = {f"p{number}": value for number, value in enumerate(given, 1)}
    match connection.dialect.name:
        case "sqlite":
            for *_, detail in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given):
                if found := re.fullmatch(r"SCAN (\w+)", detail):
                    yield tables.get(str(found[1]), str(found[1])), ROWS
        case "postgresql":
            explained = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {text}", given)
            for step in _steps(explained.scalar_one()):
                if step.get("Node Type") == "Seq Scan":
                    rows = step["Actual Rows"] + step.get("Rows Removed by Filter", 0)
                    yield step["Relation Name"], rows * step["Actual Loops"]
        case _:
            explained = connection.exec_driver_sql(f"ANALYZE FORMAT=JSON {text}", given)
            for name, between, rows in _WHOLE_TABLE.findall(explained.scalar_one()):
                loops = re.search(r'"r_loops": ([\d.]+)', between)
                yield tables.get(name, name), float(rows) * (float(loops[1]) if loops else 1.0)


def _steps(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a plan."""
    for part in plan if isinstance(plan, list) else plan.values() if isinstance(plan, dict) else ():
        yield from _steps(part)
    if isinstance(plan, dict):
        yield plan


@contextmanager
def filled(kind: str) -> Iterator[Connection]:
    """Give a connection to a database of this kind with many rows."""
    with tempfile.TemporaryDirectory() as directory:
        if kind == "sqlite":
            with _connected(databases.sqlite(Path(directory))) as connection:
                yield connection
            return
        name = "mariadb" if kind == "mysql" else kind
        with databases.fresh(Server(name, name)) as url, _connected(url) as connection:
            yield connection


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = build_engine(DatabaseSettings(connection=url, statement_timeout=600.0))
    with engine.connect() as connection:
        if connection.dialect.name == "mysql":
            connection.exec_driver_sql("SET SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT'")
        fill(connection)
        if connection.dialect.name == "mysql":
            connection.exec_driver_sql("SET SESSION sql_mode = ''")
        yield connection
    engine.dispose()


def judge(connection: Connection, text: str, values: Any) -> str:
    """Return what is wrong with how the statement is executed, or ""."""
    connection.exec_driver_sql("BEGIN")
    try:
        read = {table: rows for table, rows in rows_read(connection, text, values) if table in GROWING}
    except DBAPIError as exc:
        return f"cannot be explained: {str(exc.orig).splitlines()[0]}"
    finally:
        connection.exec_driver_sql("ROLLBACK")
    return ", ".join(f"reads {rows:.0f} rows of {table}" for table, rows in read.items() if rows > MAX_ROWS_READ)


def main(files: list[str]) -> int:
    """Judge all statements of the files; return the exit code."""
    recorded: dict[str, dict[str, Any]] = {}
    for line in [line for file in files for line in Path(file).read_text().splitlines()]:
        kind, text, values = json.loads(line)
        recorded.setdefault(kind, {}).setdefault(text, values)
    wrong = 0
    for kind, statements in recorded.items():
        with closing(KeeperProcess()), filled(kind) as connection:
            for text, values in statements.items():
                line = " ".join(text.split())
                if any(re.search(pattern, line) for pattern in WHOLE.values()):
                    continue
                if fault := judge(connection, text, values):
                    wrong += 1
                    print(f"{kind}: {fault}: ...{line.partition(' FROM')[2][:500] or line}")
        print(f"{kind}: {len(statements)} statements")
    return int(wrong > 0 or not recorded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
