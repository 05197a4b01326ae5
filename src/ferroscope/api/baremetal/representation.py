"""The fields of a resource of the Bare Metal API, and lists and JSON patches of resources that are plain records.

Nodes and ports need more, and have modules of their own. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from ferroscope.api.baremetal.node_fields import chosen_fields
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.http import json_patch, paging
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.route import Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, Limit, SortDir, Uuid, iso, one_of, pair
from ferroscope.core.model import Chassis, Document, Portgroup
from ferroscope_client.core.json_safety import MAX_DEPTH

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)


class ApiField(msgspec.Struct, Generic[T], frozen=True):
    """A field of a representation; ``get`` takes the resource and the API's base URL."""

    name: str
    since: int
    type: Any
    get: Callable[[T, str], Any]
    sorts: bool = False


def stored_field(name: str, kind: Any, *, since: int = 1, sorts: bool = False) -> ApiField[Any]:
    """Return the field of the same name as the record's."""
    return ApiField(name, since, kind, lambda record, _url: getattr(record, name), sorts)


def timestamps() -> tuple[ApiField[Any], ...]:
    """Return the fields that all resources have."""
    return (
        ApiField("created_at", 1, str | None, lambda record, _url: iso(record.created_at), sorts=True),
        ApiField("updated_at", 1, str | None, lambda record, _url: iso(record.updated_at), sorts=True),
    )


def links(collection: str, identifier: str = "uuid", *, of: str = "") -> ApiField[Any]:
    """Return the links to the resource, or to its collection ``of``."""
    path = f"/{of}" if of else ""
    return ApiField(
        of or "links",
        1,
        list[ApiLink],
        lambda record, url: pair(url, f"{collection}/{getattr(record, identifier)}{path}"),
    )


class Representation(Generic[T]):
    """The fields of one kind of resource; ``default`` are those in a list, ``since`` that of the resource itself."""

    def __init__(self, kind: str, collection: str, fields: Sequence[ApiField[T]], default: Sequence[str]) -> None:
        self.kind = kind
        self.collection = collection
        self.default = default
        self.fields = tuple(sorted(fields, key=lambda field: field.name))
        self.by_name: Final = {field.name: field for field in self.fields}
        self.sort_fields = {"id": "created_at"} | {field.name: field.name for field in self.fields if field.sorts}

    def view(self, name: str) -> Any:
        """Return the type of the response."""
        return msgspec.defstruct(
            name,
            [(field.name, field.type | msgspec.UnsetType, msgspec.UNSET) for field in self.fields],
            namespace={"__doc__": f"A {self.kind}, with the requested fields that the microversion supports."},
            module=__name__,
        )

    def page(self, name: str, view: Any) -> Any:
        """Return the type of a page of them."""
        return msgspec.defstruct(
            name,
            [(self.collection, list[view]), ("next", str | msgspec.UnsetType, msgspec.UNSET)],
            namespace={"__doc__": f"A page of {self.collection}; ``next`` is the URL of the next page."},
            module=__name__,
            frozen=True,
        )

    def names(self) -> Any:
        """Return the type of a field's name."""
        return Annotated[str, one_of(*self.by_name)]

    def sort_keys(self) -> Any:
        """Return the type of a sort key."""
        return Annotated[str, one_of(*self.sort_fields)]

    def select_listed(self, minor: int, names: Sequence[str] | None, detail: bool | None) -> tuple[ApiField[T], ...]:
        """Return the fields to show in a list; 400 for unknown fields, 406 for newer ones."""
        return self.select(minor, chosen_fields(minor, names, detail, self.default))

    def select(self, minor: int, names: Sequence[str] | None = None) -> tuple[ApiField[T], ...]:
        """Return the fields to show, None for all; 400 for unknown fields, 406 for newer ones."""
        if names is None:
            return tuple(field for field in self.fields if field.since <= minor)
        unknown = sorted(set(names) - set(self.by_name))
        if unknown:
            raise BadRequestError(f"Unknown field(s) of a {self.kind}: {', '.join(name[:80] for name in unknown[:8])}.")
        self.check(minor, names)
        return tuple(field for field in self.fields if field.name in {*names, "links"})

    def check(self, minor: int, names: Sequence[str]) -> None:
        """Raise 406 for fields that are newer than the microversion."""
        for name in names:
            if name in self.by_name and self.by_name[name].since > minor:
                raise NotAcceptableError(f"The field {name} requires API version 1.{self.by_name[name].since}.")

    def render(self, record: T, fields: Sequence[ApiField[T]], url: str) -> dict[str, Any]:
        """Return the record with these fields."""
        return {field.name: field.get(record, url) for field in fields}

    def reply(self, call: RouteCall[Any, Any], path: str, page: paging.Page, size: int) -> Reply:
        """Return a page."""
        body: dict[str, Any] = {self.collection: page.items}
        if page.last is not None:
            body["next"] = paging.next_link(call.url, path, call.query, size, page.last)
        return Reply(200, body)


class DetailedListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a detailed list; further parameters are filters."""

    limit: Limit | None = None
    marker: Uuid | None = None
    sort_dir: SortDir = "asc"


def patch_record(record: Chassis | Portgroup, operations: list[Operation], wanted: type[B]) -> tuple[Document, B]:
    """Return the values that a JSON patch changes, and the whole body with them; 400 if it is invalid."""
    names = wanted.__struct_fields__
    document = {name: getattr(record, _STORED.get(name, name)) for name in names}
    changed = json_patch.apply(document, operations, names, max_depth=MAX_DEPTH)
    try:
        return changed, msgspec.convert(document | changed, wanted)
    except msgspec.ValidationError as exc:
        kind = type(record).__name__.lower()
        raise BadRequestError(f"Invalid {kind} after the patch: {exc}. GET /openapi.json returns its schema.") from None


_STORED: Final = {"node_uuid": "node"}
