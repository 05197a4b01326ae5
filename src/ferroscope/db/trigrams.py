"""An index of the trigrams of all texts in which a search looks for bare words, so that it does not read all nodes.

PostgreSQL has indexes of its extension ``pg_trgm``. SQLite has a table of FTS5, which triggers keep up to date. MariaDB
has no such index, so a search reads the nodes there. Migration 0006 creates both.
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
_UUID_CHARACTERS: Final = 36
_HAS_TRIGRAM: Final = re.compile(r"[a-z0-9]{3}")
_UUID_PREFIX: Final = re.compile(r"[0-9a-f-]{1,36}")
# PostgreSQL has trigrams of letters and digits only. As letters, these tell addresses and names apart, too.
_LETTERS: Final = {":": "q", ".": "x", "-": "z", "/": "j", "_": "y"}
_TO_LETTERS: Final = str.maketrans(_LETTERS)
_EXACT: Final = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


def _texts(name: str) -> str:
    """Return the SQL of all texts of a row of the table, each on a line of its own, as the index has it."""
    texts = " || '\n' || ".join(f"coalesce({column}, '')" for column in _COLUMNS[name])
    return f"lower({texts})" if name == "nodes" else f"({texts})"


def _as_letters(texts: str) -> str:
    """Return the SQL of the texts with letters in place of punctuation."""
    for punctuation, letter in _LETTERS.items():
        texts = f"replace({texts}, '{punctuation}', '{letter}')"
    return texts


def index_names(dialect: str) -> Sequence[str]:
    """Return the names of the indexes on PostgreSQL, which a backup of its tables alone does not restore."""
    return [f"ix_{name}_trigrams" for name in _COLUMNS] if dialect == "postgresql" else []


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
