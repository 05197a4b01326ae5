"""An index of the trigrams of all texts in which a search looks for bare words, so that it does not read all nodes.

PostgreSQL has indexes of its extension ``pg_trgm``. SQLite has a table of FTS5, which triggers keep up to date. MariaDB
has no such index, so a search reads the nodes there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, column, func, literal_column, select, table, true, union_all

from ferroscope.db import schema
from ferroscope.db.session import Session

# Of a word that more nodes have, a page is full soon: it is read in the order of the nodes.
MAX_NODES: Final = 5000
# The columns with texts, by table; a row of ``search_index`` of this kind has the texts of a node's parts.
_COLUMNS: Final = {
    "search_index": ("t1", "t2", "t3", "t4", "t5", "t6", "t7"),
    "nodes": ("name", "owner", "resource_class", "driver"),
    "bmc_addresses": ("address",),
}
_OF_PARTS: Final = "kind = 'words'"
# What tells the rows of a node apart on SQLite, where they begin with its UUID.
_SOURCES: Final = {
    "search_index": "{0}node || ' words ' || {0}position",
    "nodes": "{0}uuid",
    "bmc_addresses": "{0}node || ' ' || {0}address",
}
_UUID_CHARACTERS: Final = 36
# So many characters of a UUID are enough to find the few rows that have them.
_PREFIX_CHARACTERS: Final = 13
_HAS_TRIGRAM: Final = re.compile(r"[a-z0-9]{3}")
_UUID_PREFIX: Final = re.compile(r"[0-9a-f-]{1,36}")
# PostgreSQL has trigrams of letters and digits only. As letters, these tell addresses and names apart, too.
_LETTERS: Final = {":": "q", ".": "x", "-": "z", "/": "j", "_": "y"}
_TO_LETTERS: Final = str.maketrans(_LETTERS)
_EXACT: Final = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


def _texts(name: str, row: str = "") -> str:
    """Return the SQL of all texts of a row of the table, each on a line of its own."""
    texts = " || '\n' || ".join(f"coalesce({row}{column}, '')" for column in _COLUMNS[name])
    return f"lower({texts})" if name == "nodes" else f"({texts})"


def _as_letters(texts: str) -> str:
    """Return the SQL of the texts with letters in place of punctuation."""
    for punctuation, letter in _LETTERS.items():
        texts = f"replace({texts}, '{punctuation}', '{letter}')"
    return texts


def create_statements(dialect: str) -> Iterator[str]:
    """Yield what creates the index, and fills it with what the tables have."""
    if dialect == "postgresql":
        yield "CREATE EXTENSION IF NOT EXISTS pg_trgm"
        for name in _COLUMNS:
            where = f" WHERE {_OF_PARTS}" if name == "search_index" else ""
            texts = _as_letters(_texts(name))
            yield f"CREATE INDEX ix_{name}_trigrams ON {name} USING gin ({texts} gin_trgm_ops){where}"
    if dialect == "sqlite":
        options = "tokenize='trigram case_sensitive 1', detail=none"
        yield f"CREATE VIRTUAL TABLE trigrams USING fts5(source, words, {options})"
        for name in _COLUMNS:
            where = f" WHERE {_OF_PARTS}" if name == "search_index" else ""
            yield f"INSERT INTO trigrams SELECT {_SOURCES[name].format('')}, {_texts(name)} FROM {name}{where}"  # noqa: S608  # constant names
            yield from _triggers(name)


def _triggers(name: str) -> Iterator[str]:
    source = _SOURCES[name].format("old.")
    add = f"INSERT INTO trigrams VALUES ({_SOURCES[name].format('new.')}, {_texts(name, 'new.')});"  # noqa: S608
    # Only the comparison by GLOB uses the index.
    remove = (
        "DELETE FROM trigrams WHERE rowid IN (SELECT rowid FROM trigrams "  # noqa: S608
        f"WHERE source GLOB substr({source}, 1, {_PREFIX_CHARACTERS}) || '*' AND source = {source});"
    )
    new, old = (f"WHEN {row}.{_OF_PARTS} " if name == "search_index" else "" for row in ("new", "old"))
    changed = ", ".join(_COLUMNS[name])
    yield f"CREATE TRIGGER trigrams_add_{name} AFTER INSERT ON {name} {new}BEGIN {add} END"
    yield f"CREATE TRIGGER trigrams_remove_{name} AFTER DELETE ON {name} {old}BEGIN {remove} END"
    yield f"CREATE TRIGGER trigrams_change_{name} AFTER UPDATE OF {changed} ON {name} {new}BEGIN {remove} {add} END"


def find_nodes(tx: Session, word: str) -> Sequence[str] | None:
    """Return the UUIDs of all nodes with this word; None if there are too many, or if no index finds them."""
    if tx.dialect.name not in _SELECTS or not _HAS_TRIGRAM.search(word.translate(_TO_LETTERS)):
        return None
    nodes = union_all(*_SELECTS[tx.dialect.name](word), *_select_by_uuid(word)).cte("found")
    # PostgreSQL plans it as if all were read: otherwise it reads whole tables, in the hope of a frequent word.
    nodes = nodes.prefix_with("MATERIALIZED", dialect="postgresql")
    rows = tx.connection.execute(select(nodes.c.node).limit(MAX_NODES + 1)).scalars().all()
    return None if len(rows) > MAX_NODES else sorted(set(rows))


def _select_by_uuid(word: str) -> Iterator[Select[Any]]:
    """Yield what selects the nodes whose UUID begins with the word."""
    uuid = schema.nodes.c.uuid
    if _UUID_PREFIX.fullmatch(word):
        yield select(uuid).where(uuid >= word, uuid < f"{word}g", func.substr(uuid, 1, len(word)) == word)


def _select_on_postgresql(word: str) -> Iterator[Select[Any]]:
    for name in _COLUMNS:
        rows = schema.metadata.tables[name]
        node = rows.c.uuid if name == "nodes" else rows.c.node
        texts: ColumnElement[str] = literal_column(_texts(name))
        letters: ColumnElement[str] = literal_column(_as_letters(_texts(name)))
        yield select(node.label("node")).where(
            literal_column(_OF_PARTS) if name == "search_index" else true(),
            letters.contains(word.translate(_TO_LETTERS), autoescape=True),
            texts.contains(word, autoescape=True),
        )


def _select_on_sqlite(word: str) -> Iterator[Select[Any]]:
    trigrams = table("trigrams", column("source"), column("words"))
    node = func.substr(trigrams.c.source, 1, _UUID_CHARACTERS).label("node")
    yield select(node).where(trigrams.c.words.op("GLOB")(f"*{word.translate(_EXACT)}*"))


_SELECTS: Final = {"postgresql": _select_on_postgresql, "sqlite": _select_on_sqlite}
