"""JSON Patch (RFC 6902) on a resource's representation: add, replace and remove, at any depth.

The Bare Metal API reference has these operations only. The library jsonpatch applies them, to a copy, so a patch that
fails partway changes nothing; the limits are ours.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Literal

import jsonpatch
import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.errors import BadRequestError, BodyTooLargeError
from ferroscope.api.http.decoding import MAX_DOCUMENT_SIZE, shown_value
from ferroscope.core.model import Document
from ferroscope_client.core.json_safety import depth_exceeds
from ferroscope_client.core.values import many

MAX_OPERATIONS: Final = 1000
MAX_TOKENS: Final = 64


class Operation(msgspec.Struct, frozen=True):
    """One operation; ``path`` starts with ``/`` and the name of a field."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any | UnsetType = UNSET


def apply(document: Document, operations: Sequence[Operation], allowed: Collection[str], *, max_depth: int) -> Document:
    """Return the new values of the fields that the patch touches; raise ``BadRequestError``, or
    ``BodyTooLargeError`` if the whole document would grow beyond ``MAX_DOCUMENT_SIZE``.

    Removing a top-level field sets it to None: a settable field always exists.
    """
    if not 0 < len(operations) <= MAX_OPERATIONS:
        raise BadRequestError(
            f"The patch has {many(len(operations), 'operation')}; between 1 and {MAX_OPERATIONS} are allowed."
        )
    fields = [_field(operation, allowed) for operation in operations]
    patched = {name: copy.deepcopy(document[name]) for name in sorted(set(fields))}
    for operation, field in zip(operations, fields, strict=True):
        if operation.op == "remove" and operation.path == f"/{field}":
            patched[field] = None
        else:
            _apply_one(patched, operation)
    _check_size(document, patched)
    if depth_exceeds(msgspec.json.encode(patched), max_depth + 1):
        raise BadRequestError(f"The patched document is nested too deeply: at most {max_depth} levels are allowed.")
    return patched


def _check_size(document: Document, patched: Document) -> None:
    """Raise ``BodyTooLargeError`` if the document would exceed the limit and be larger than before."""
    after = len(msgspec.json.encode(document | patched))
    if after <= MAX_DOCUMENT_SIZE or after <= len(msgspec.json.encode(document)):
        return
    sizes = {name: len(msgspec.json.encode(value)) for name, value in patched.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    raise BodyTooLargeError(
        f"The patched document is too large: {after} bytes ({largest}: {sizes[largest]}), at most {MAX_DOCUMENT_SIZE} "
        "are allowed. Remove data that is no longer needed."
    )


def written_fields(operations: Iterable[Operation]) -> set[str]:
    """Return the top-level fields that operations set, to null or anything else; those that they remove are not."""
    return {operation.path[1:].partition("/")[0] for operation in operations if operation.op != "remove"}


def _field(operation: Operation, allowed: Collection[str]) -> str:
    """Return the top-level field that the operation changes."""
    if not operation.path.startswith("/"):
        raise BadRequestError(f"Invalid path {shown_value(operation.path)}: it must start with a slash, such as /name.")
    field, *deeper = operation.path[1:].split("/")
    if len(deeper) >= MAX_TOKENS:
        raise BadRequestError(f"Invalid path {shown_value(operation.path)}: it has more than {MAX_TOKENS} components.")
    if field not in allowed:
        raise BadRequestError(
            f"Cannot update {shown_value(operation.path)}. These fields can be updated: {', '.join(sorted(allowed))}."
        )
    if operation.op != "remove" and operation.value is UNSET:
        raise BadRequestError(f"The operation {operation.op} on {shown_value(operation.path)} requires a value.")
    return field


def _apply_one(document: Document, operation: Operation) -> None:
    parts = {"op": operation.op, "path": operation.path, "value": operation.value}
    try:
        jsonpatch.apply_patch(document, [parts], in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        # Their texts may contain the document.
        raise BadRequestError(
            f"Cannot apply the patch: can't {operation.op} a non-existent object or index "
            f"{shown_value(operation.path)}."
        ) from None
