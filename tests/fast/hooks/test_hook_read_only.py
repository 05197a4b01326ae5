"""What hooks get to read and cannot change: inventories, and copies of documents."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.hooks.base import HookTask, ReadOnlyError
from ferroscope.hooks.pipeline import deep_copy, read_only
from tests.fast.hooks.runs import Hook, Step, failure, run_objects
from tests.support.rows import each

CHANGES: dict[str, Step] = {
    "set a key": lambda _task, inventory, _data: inventory.__setitem__("x", 1),
    "set a nested key": lambda _task, inventory, _data: inventory["cpu"].__setitem__("count", 0),
    "delete a key": lambda _task, inventory, _data: inventory.__delitem__("cpu"),
    "pop": lambda _task, inventory, _data: inventory.pop("cpu"),
    "popitem": lambda _task, inventory, _data: inventory.popitem(),
    "clear": lambda _task, inventory, _data: inventory.clear(),
    "update": lambda _task, inventory, _data: inventory.update(x=1),
    "setdefault": lambda _task, inventory, _data: inventory.setdefault("x", 1),
    "update in place": lambda _task, inventory, _data: inventory.__ior__({"x": 1}),
    "append": lambda _task, inventory, _data: inventory["disks"].append({}),
    "extend": lambda _task, inventory, _data: inventory["disks"].extend([{}]),
    "insert": lambda _task, inventory, _data: inventory["disks"].insert(0, {}),
    "remove": lambda _task, inventory, _data: inventory["disks"].remove({}),
    "pop an item": lambda _task, inventory, _data: inventory["disks"].pop(),
    "set an item": lambda _task, inventory, _data: inventory["disks"].__setitem__(0, {}),
    "delete an item": lambda _task, inventory, _data: inventory["disks"].__delitem__(0),
    "sort": lambda _task, inventory, _data: inventory["disks"].sort(),
    "reverse": lambda _task, inventory, _data: inventory["disks"].reverse(),
    "clear a list": lambda _task, inventory, _data: inventory["disks"].clear(),
    "add in place": lambda _task, inventory, _data: inventory["disks"].__iadd__([1]),
    "multiply in place": lambda _task, inventory, _data: inventory["disks"].__imul__(2),
    "deep in a list": lambda _task, inventory, _data: inventory["disks"][0].__setitem__("size", 0),
}


@each("change", CHANGES.values())
def test_the_inventory_cannot_be_changed_by_a_hook(change: Step) -> None:
    inventory = {"cpu": {"count": 8}, "disks": [{"size": 1}]}
    before = copy.deepcopy(inventory)
    seen: list[object] = []

    def look(_task: HookTask, inventory: dict[str, Any], _data: dict[str, Any]) -> None:
        seen.append(inventory)

    with structlog.testing.capture_logs():
        run_objects({"bad": Hook(after=change), "next": Hook(after=look)}, inventory, optional=("bad",))
    assert seen == [before]
    assert inventory == before


def test_a_hook_that_changes_the_inventory_is_told_what_to_do() -> None:
    error = failure({"a": Hook(before=CHANGES["set a key"])})
    assert "hook a raised ReadOnlyError" in error.message
    assert "plugin_data" in error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(st.text(max_size=5), JSON, max_size=5)


@given(DOCUMENTS)
def test_a_read_only_document_reads_and_encodes_like_the_original(document: dict[str, Any]) -> None:
    frozen = read_only(document)
    assert frozen == document
    assert msgspec.json.encode(frozen) == msgspec.json.encode(document)
    thawed = copy.deepcopy(frozen)
    assert thawed == document
    assert type(thawed) is dict
    assert type(copy.copy(frozen)) is dict


def test_copies_of_a_read_only_document_can_be_changed() -> None:
    frozen = read_only({"disks": [{"size": 1}]})
    deep = copy.deepcopy(frozen)
    deep["disks"][0]["size"] = 2
    shallow = copy.copy(frozen["disks"])
    shallow.append(3)
    with pytest.raises(ReadOnlyError):
        frozen["disks"][0]["size"] = 2
    assert frozen == {"disks": [{"size": 1}]}


@given(DOCUMENTS)
def test_a_copy_is_equal_and_shares_no_container(document: dict[str, Any]) -> None:
    duplicate = deep_copy(document)
    assert duplicate == document

    def containers(value: Any) -> set[int]:
        if isinstance(value, dict):
            return {id(value)}.union(*(containers(item) for item in value.values()))
        if isinstance(value, list):
            return {id(value)}.union(*(containers(item) for item in value))
        return set()

    assert not containers(duplicate) & containers(document)
