"""The saved searches of users."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select

from ferroscope.core.saved_search import SavedSearch
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, upsert
from ferroscope.db.session import Repository

_SAVED = Mapper(SavedSearch, schema.saved_searches)
_s = schema.saved_searches.c
_LIST = select(*_SAVED.columns).where(_s.user == bindparam("user")).order_by(_s.name)
_LOCK = select(_s.name).where(_s.user == bindparam("user")).order_by(_s.name).with_for_update()
_REMOVE = delete(schema.saved_searches).where(_s.user == bindparam("user"), _s.name == bindparam("name"))


class SavedSearches(Repository):
    """Each belongs to the user with the name of its principal, and has a name that is unique for this user."""

    def list(self, user: str) -> Sequence[SavedSearch]:
        """Return the searches of this user, by name."""
        return [_SAVED.from_row(row) for row in self._tx.run(_LIST, {"user": user})]

    def names(self, user: str) -> set[str]:
        """Return the names of this user's searches; until this transaction ends, others wait here."""
        locked = self._tx.run(_LOCK, {"user": user})
        # Asked again: after the wait, the rows that others added are visible.
        return {name for (name,) in self._tx.run(_LOCK, {"user": user})} if locked else set()

    def put(self, search: SavedSearch) -> None:
        """Store it, and replace a search of the same name; the last of several writers wins."""
        self._tx.run(upsert(self._tx.dialect.name, schema.saved_searches), _SAVED.to_row(search))

    def remove(self, user: str, name: str) -> bool:
        """Delete it; return False if there is none."""
        return self._tx.run(_REMOVE, {"user": user, "name": name}).rowcount > 0
