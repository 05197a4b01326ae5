"""The searches that a user has saved: nobody else sees them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.baremetal.search import parse_query
from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso
from ferroscope.core.saved_search import MAX_SEARCHES, NAME, SavedSearch, is_name
from ferroscope.db import Transaction

POLICY: Final = "ferroscope:search"
_MAX_USER_CHARACTERS: Final = 255


class SearchToSave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``q``: the query, as of GET /v1/search; "" for all nodes. ``view``: order and columns of the web page."""

    q: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    view: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class SavedSearchView(msgspec.Struct, frozen=True):
    """A saved search."""

    name: str
    q: str
    view: str
    created_at: str | None


class SavedSearchList(msgspec.Struct, frozen=True):
    """All saved searches of the caller, by name."""

    saved_searches: list[SavedSearchView]


def list_saved(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the saved searches of the caller."""
    searches = context.data.store.read(lambda tx: tx.saved_searches.list(_user(call)))
    return Reply(200, SavedSearchList([_view(search) for search in searches]))


def save(context: ApiContext, call: RouteCall[NoQuery, SearchToSave]) -> Reply:
    """Save a search under a name, in the place of an earlier one."""
    user, name, body = _user(call), call.path["search"], call.body
    if not is_name(name):
        raise BadRequestError(f"Invalid name {name[:80]!r}: expected {NAME}.")
    if body.q:
        parse_query(body.q)

    def work(tx: Transaction) -> SavedSearch:
        if len(tx.saved_searches.names(user) | {name}) > MAX_SEARCHES:
            raise StateConflictError(f"At most {MAX_SEARCHES} searches can be saved; delete one first.")
        saved = SavedSearch(user=user, name=name, q=body.q, view=body.view, created_at=tx.now)
        tx.saved_searches.put(saved)
        return saved

    return Reply(200, _view(context.data.store.write(work)))


def remove(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a saved search."""
    name = call.path["search"]
    if not context.data.store.write(lambda tx: tx.saved_searches.remove(_user(call), name)):
        raise MissingError(f"Saved search {name[:80]!r} could not be found.")
    return Reply(204)


def _user(call: RouteCall[Any, Any]) -> str:
    return call.identity.principal[:_MAX_USER_CHARACTERS]


def _view(search: SavedSearch) -> SavedSearchView:
    return SavedSearchView(search.name, search.q, search.view, iso(search.created_at))
