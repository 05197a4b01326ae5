"""Indexes for the words of searches and for the wiring, and a table of what is counted ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa
from alembic import op

from ferroscope.db.columns import LONG_TEXT, OPTIONS

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# The columns with texts, by table; what tells the rows of a node apart on SQLite; and which rows count.
_TRIGRAMS: Final = (
    (
        "search_index",
        ("t1", "t2", "t3", "t4", "t5", "t6", "t7"),
        "{0}node || ' words ' || {0}position",
        "kind = 'words'",
    ),
    ("nodes", ("name", "owner", "resource_class", "driver"), "{0}uuid", ""),
    ("bmc_addresses", ("address",), "{0}node || ' ' || {0}address", ""),
)
_LETTERS: Final = ((":", "q"), (".", "x"), ("-", "z"), ("/", "j"), ("_", "y"))


def upgrade() -> None:
    op.create_table(
        "counts",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("content", LONG_TEXT, nullable=False),
        sa.Column("counted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counts"),
        **OPTIONS,
    )
    for name, kind, columns in (("serials", "node", ["t3"]), ("switches", "nic", ["t6", "t7"])):
        where = sa.text(f"kind = '{kind}'")
        op.create_index(
            f"ix_search_index_{name}",
            "search_index",
            ["kind", *columns, "node"],
            postgresql_where=where,
            sqlite_where=where,
        )
    connection = op.get_bind()
    for statement in create_trigrams(connection.dialect.name):
        connection.exec_driver_sql(statement)


def create_trigrams(dialect: str) -> Iterator[str]:
    """Yield what creates the index of trigrams, and fills it with what the tables have."""
    if dialect == "postgresql":
        yield "CREATE EXTENSION IF NOT EXISTS pg_trgm"
        for name, columns, _, condition in _TRIGRAMS:
            letters, where = _texts(name, columns), f" WHERE {condition}" if condition else ""
            for punctuation, letter in _LETTERS:
                letters = f"replace({letters}, '{punctuation}', '{letter}')"
            yield f"CREATE INDEX ix_{name}_trigrams ON {name} USING gin ({letters} gin_trgm_ops){where}"
    if dialect == "sqlite":
        options = "tokenize='trigram case_sensitive 1', detail=none"
        yield f"CREATE VIRTUAL TABLE trigrams USING fts5(source, words, {options})"
        for name, columns, source, condition in _TRIGRAMS:
            where = f" WHERE {condition}" if condition else ""
            yield f"INSERT INTO trigrams SELECT {source.format('')}, {_texts(name, columns)} FROM {name}{where}"  # noqa: S608  # constant names
            yield from _triggers(name, columns, source, condition)


def _triggers(name: str, columns: tuple[str, ...], source: str, condition: str) -> Iterator[str]:
    old = source.format("old.")
    add = f"INSERT INTO trigrams VALUES ({source.format('new.')}, {_texts(name, columns, 'new.')});"  # noqa: S608
    # Only the comparison by GLOB uses the index; the beginning of a UUID finds the few rows that have it.
    remove = (
        "DELETE FROM trigrams WHERE rowid IN (SELECT rowid FROM trigrams "  # noqa: S608
        f"WHERE source GLOB substr({old}, 1, 13) || '*' AND source = {old});"
    )
    if_new, if_old = (f"WHEN {row}.{condition} " if condition else "" for row in ("new", "old"))
    changed = ", ".join(columns)
    yield f"CREATE TRIGGER trigrams_add_{name} AFTER INSERT ON {name} {if_new}BEGIN {add} END"
    yield f"CREATE TRIGGER trigrams_remove_{name} AFTER DELETE ON {name} {if_old}BEGIN {remove} END"
    yield f"CREATE TRIGGER trigrams_change_{name} AFTER UPDATE OF {changed} ON {name} {if_new}BEGIN {remove} {add} END"


def _texts(name: str, columns: tuple[str, ...], row: str = "") -> str:
    """Return the SQL of all texts of a row of the table, each on a line of its own."""
    texts = " || '\n' || ".join(f"coalesce({row}{column}, '')" for column in columns)
    return f"lower({texts})" if name == "nodes" else f"({texts})"
