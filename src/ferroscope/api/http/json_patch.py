"""JSON patch on the representation of a thing: add, replace and remove, at any depth.

Source: RFC 6902 and RFC 6901, narrowed to what the Bare Metal API reference takes. It works on
a copy, so a patch that fails half way has changed nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.http.decoding import MAX_DOCUMENT_SIZE, shown
from ferroscope.api.http.errors import BadRequestError, TooLargeError
from ferroscope.core.json_safety import depth_exceeds
from ferroscope.core.model import Document

MAX_OPERATIONS: Final = 1000
MAX_TOKENS: Final = 64


class Operation(msgspec.Struct, frozen=True):
    """One operation; ``path`` begins with ``/`` and the name of a field."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any | UnsetType = UNSET


def apply(document: Document, operations: Sequence[Operation], allowed: Collection[str], *, max_depth: int) -> Document:
    """Return the new values of the fields that the patch touches; raise ``BadRequestError``, or
    ``TooLargeError`` where the whole document would grow beyond ``MAX_DOCUMENT_SIZE``.

    Removing a field itself leaves None: what is settable always exists.
    """
    if not 0 < len(operations) <= MAX_OPERATIONS:
        raise BadRequestError(f"A patch needs 1 to {MAX_OPERATIONS} operations; it has {len(operations)}.")
    paths = [_pointer(operation, allowed) for operation in operations]
    patched = {name: copy.deepcopy(document[name]) for name in sorted({path[0] for path in paths})}
    for operation, path in zip(operations, paths, strict=True):
        if operation.op == "remove" and len(path) == 1:
            patched[path[0]] = None
        else:
            _apply_one(patched, operation, path)
    _check_size(document, patched)
    if depth_exceeds(msgspec.json.encode(patched), max_depth + 1):
        raise BadRequestError(f"The patch would nest more than {max_depth} objects and arrays within another.")
    return patched


def _check_size(document: Document, patched: Document) -> None:
    """Raise ``TooLargeError`` where the whole of it would be too large, and larger than it was."""
    after = len(msgspec.json.encode(document | patched))
    if after <= MAX_DOCUMENT_SIZE or after <= len(msgspec.json.encode(document)):
        return
    sizes = {name: len(msgspec.json.encode(value)) for name, value in patched.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    raise TooLargeError(
        f"With this patch it would have {after} bytes, {largest} {sizes[largest]} of them; at most {MAX_DOCUMENT_SIZE} "
        "are possible. Remove what is not needed any more."
    )


def _pointer(operation: Operation, allowed: Collection[str]) -> list[str]:
    if not operation.path.startswith("/"):
        raise BadRequestError(f"The path {shown(operation.path)} must begin with a slash, like /name.")
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in operation.path[1:].split("/")]
    if len(tokens) > MAX_TOKENS:
        raise BadRequestError(f"The path {shown(operation.path)} has more than {MAX_TOKENS} parts.")
    if tokens[0] not in allowed:
        raise BadRequestError(
            f"Cannot patch {shown(operation.path)}. Only these can be updated: {', '.join(sorted(allowed))}."
        )
    if operation.op != "remove" and operation.value is UNSET:
        raise BadRequestError(f"The operation {operation.op} on {shown(operation.path)} needs a value.")
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
        raise BadRequestError(f"{shown(token)} in {shown(operation.path)} is no index of a list of {len(parent)}.")
    return int(token)


def _missing(operation: Operation) -> BadRequestError:
    return BadRequestError(f"Cannot {operation.op} {shown(operation.path)}: there is nothing at this path.")
