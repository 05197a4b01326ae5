"""JSON Patch on a resource's representation: add, replace and remove, at any depth.

Source: RFC 6902 and RFC 6901, restricted to the operations of the Bare Metal API reference. It works on a copy, so
a patch that fails partway changes nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.errors import BadRequestError, TooLargeError
from ferroscope.api.http.decoding import MAX_DOCUMENT_SIZE, shown
from ferroscope.core.json_safety import depth_exceeds
from ferroscope.core.model import Document
from ferroscope.core.values import many

MAX_OPERATIONS: Final = 1000
MAX_TOKENS: Final = 64


class Operation(msgspec.Struct, frozen=True):
    """One operation; ``path`` starts with ``/`` and the name of a field."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any | UnsetType = UNSET


def apply(document: Document, operations: Sequence[Operation], allowed: Collection[str], *, max_depth: int) -> Document:
    """Return the new values of the fields that the patch touches; raise ``BadRequestError``, or
    ``TooLargeError`` if the whole document would grow beyond ``MAX_DOCUMENT_SIZE``.

    Removing a top-level field sets it to None: a settable field always exists.
    """
    if not 0 < len(operations) <= MAX_OPERATIONS:
        raise BadRequestError(
            f"The patch has {many(len(operations), 'operation')}; between 1 and {MAX_OPERATIONS} are allowed."
        )
    paths = [_pointer(operation, allowed) for operation in operations]
    patched = {name: copy.deepcopy(document[name]) for name in sorted({path[0] for path in paths})}
    for operation, path in zip(operations, paths, strict=True):
        if operation.op == "remove" and len(path) == 1:
            patched[path[0]] = None
        else:
            _apply_one(patched, operation, path)
    _check_size(document, patched)
    if depth_exceeds(msgspec.json.encode(patched), max_depth + 1):
        raise BadRequestError(f"The patched document is nested too deeply: at most {max_depth} levels are allowed.")
    return patched


def _check_size(document: Document, patched: Document) -> None:
    """Raise ``TooLargeError`` if the document would exceed the limit and be larger than before."""
    after = len(msgspec.json.encode(document | patched))
    if after <= MAX_DOCUMENT_SIZE or after <= len(msgspec.json.encode(document)):
        return
    sizes = {name: len(msgspec.json.encode(value)) for name, value in patched.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    raise TooLargeError(
        f"The patched document is too large: {after} bytes ({largest}: {sizes[largest]}), at most {MAX_DOCUMENT_SIZE} "
        "are allowed. Remove data that is no longer needed."
    )


def _pointer(operation: Operation, allowed: Collection[str]) -> list[str]:
    if not operation.path.startswith("/"):
        raise BadRequestError(f"Invalid path {shown(operation.path)}: it must start with a slash, such as /name.")
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in operation.path[1:].split("/")]
    if len(tokens) > MAX_TOKENS:
        raise BadRequestError(f"Invalid path {shown(operation.path)}: it has more than {MAX_TOKENS} components.")
    if tokens[0] not in allowed:
        raise BadRequestError(
            f"Cannot update {shown(operation.path)}. These fields can be updated: {', '.join(sorted(allowed))}."
        )
    if operation.op != "remove" and operation.value is UNSET:
        raise BadRequestError(f"The operation {operation.op} on {shown(operation.path)} requires a value.")
    return tokens


def _apply_one(document: Document, operation: Operation, path: list[str]) -> None:
    parent: Any = document
    for token in path[:-1]:
        parent = _child(parent, token, operation)
    if isinstance(parent, dict):
        _change_object(parent, path[-1], operation)
    elif isinstance(parent, list):
        _change_array(parent, path[-1], operation)
    else:
        raise _missing(operation)


def _change_object(parent: Document, key: str, operation: Operation) -> None:
    if operation.op != "add" and key not in parent:
        raise _missing(operation)
    if operation.op == "remove":
        del parent[key]
    else:
        parent[key] = operation.value


def _change_array(parent: list[Any], key: str, operation: Operation) -> None:
    if operation.op == "add" and key == "-":
        parent.append(operation.value)
        return
    index = _index(parent, key, operation, limit=len(parent) + (operation.op == "add"))
    if operation.op == "remove":
        del parent[index]
    elif operation.op == "add":
        parent.insert(index, operation.value)
    else:
        parent[index] = operation.value


def _child(parent: Any, token: str, operation: Operation) -> Any:
    if isinstance(parent, dict) and token in parent:
        return parent[token]
    if isinstance(parent, list):
        return parent[_index(parent, token, operation, limit=len(parent))]
    raise _missing(operation)


def _index(parent: list[Any], token: str, operation: Operation, *, limit: int) -> int:
    plain = token.isascii() and token.isdigit() and len(token) <= 9 and str(int(token)) == token
    if not plain or int(token) >= limit:
        raise BadRequestError(
            f"Invalid index {shown(token)} in {shown(operation.path)}: the list has {many(len(parent), 'item')}."
        )
    return int(token)


def _missing(operation: Operation) -> BadRequestError:
    what = f"can't {operation.op} a non-existent object {shown(operation.path)}"
    return BadRequestError(f"Cannot apply the patch: {what}.")
