"""JSON patch: what it does to a document, and that it does it to a copy."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import json_patch
from ferroscope.api.http.json_patch import Operation
from tests.support.rows import each

DOCUMENT: dict[str, Any] = {"name": "n", "extra": {"a": {"b": [1, 2]}, "": 0}, "list": [1, 2, 3]}


def apply(*operations: Operation) -> dict[str, Any]:
    return json_patch.apply(DOCUMENT, operations, DOCUMENT.keys(), max_depth=25)


@each(
    ("operation", "changed"),
    [
        (Operation("replace", "/name", "m"), {"name": "m"}),
        (Operation("remove", "/name"), {"name": None}),
        (Operation("add", "/extra/a/b/0", 0), {"extra": {"a": {"b": [0, 1, 2]}, "": 0}}),
        (Operation("add", "/extra/a/b/2", 3), {"extra": {"a": {"b": [1, 2, 3]}, "": 0}}),
        (Operation("add", "/extra/a/b/-", 3), {"extra": {"a": {"b": [1, 2, 3]}, "": 0}}),
        (Operation("replace", "/extra/a", None), {"extra": {"a": None, "": 0}}),
        (Operation("remove", "/extra/"), {"extra": {"a": {"b": [1, 2]}}}),
        (Operation("add", "/extra/x~1y~0z~01", 1), {"extra": {"a": {"b": [1, 2]}, "": 0, "x/y~z~1": 1}}),
        (Operation("remove", "/list/1"), {"list": [1, 3]}),
    ],
)
def test_operation_gives_the_touched_fields(operation: Operation, changed: dict[str, Any]) -> None:
    assert apply(operation) == changed


def test_operations_build_on_each_other() -> None:
    changed = apply(
        Operation("replace", "/extra", {}), Operation("add", "/extra/k", []), Operation("add", "/extra/k/0", 1)
    )
    assert changed == {"extra": {"k": [1]}}


@given(
    st.lists(
        st.builds(
            Operation,
            op=st.sampled_from(["add", "replace", "remove"]),
            path=st.lists(st.sampled_from(["", "a", "b", "0", "1", "-", "name", "extra", "list"]), max_size=4).map(
                lambda parts: "".join(f"/{part}" for part in parts)
            ),
            value=st.sampled_from([None, 1, "x", [], {"a": []}]),
        ),
        max_size=6,
    )
)
def test_any_patch_is_applied_or_refused_and_the_original_stays(operations: list[Operation]) -> None:
    before = copy.deepcopy(DOCUMENT)
    with contextlib.suppress(BadRequestError):
        assert set(apply(*operations)) <= set(DOCUMENT)
    assert before == DOCUMENT


@each(
    "operation",
    [
        Operation("add", "", 1),
        Operation("add", "name", 1),
        Operation("add", "/unknown", 1),
        Operation("add", "/name"),
        Operation("remove", "/extra/zzz"),
        Operation("replace", "/list/3", 1),
        Operation("replace", "/list/-", 1),
        Operation("add", "/list/²", 1),
        Operation("add", "/list/+1", 1),
        Operation("add", "/extra/a~2", 1),
        Operation("add", "/name/0", 1),
        Operation("add", "/extra" + "/x" * json_patch.MAX_TOKENS, 1),
    ],
)
def test_bad_operation_is_refused(operation: Operation) -> None:
    with pytest.raises(BadRequestError):
        apply(operation)


def test_refusal_does_not_show_the_document() -> None:
    document = {"extra": {"password": "s3cret"}}
    with pytest.raises(BadRequestError) as refusal:
        json_patch.apply(document, [Operation("add", "/extra/a/b", 1)], document.keys(), max_depth=25)
    assert "s3cret" not in str(refusal.value)


def test_number_of_operations_is_bounded() -> None:
    for operations in ([], [Operation("replace", "/name", "x")] * (json_patch.MAX_OPERATIONS + 1)):
        with pytest.raises(BadRequestError):
            apply(*operations)
