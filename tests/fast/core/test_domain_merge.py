"""A task's changes and an operator's, both made since the task began: neither is lost."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core.model import Node
from ferroscope.core.node_changes import three_way
from ferroscope_client.core.states import Provision, State

BEFORE = Node(uuid="node", driver="fake", name="old", properties={"a": 1, "b": 2}, extra={"x": 1}, version=3)


def changed(node: Node = BEFORE, **fields: Any) -> Node:
    return msgspec.structs.replace(node, **fields)


def test_changes_of_different_fields_are_both_kept() -> None:
    merged = three_way(BEFORE, changed(properties={"a": 1, "b": 2, "cpu_arch": "x86_64"}), changed(name="operator"))
    assert (merged.name, merged.properties) == ("operator", {"a": 1, "b": 2, "cpu_arch": "x86_64"})


def test_where_both_changed_the_same_the_task_wins() -> None:
    after = changed(name="task", properties={"a": "task", "b": 2})
    current = changed(name="operator", properties={"a": "operator", "b": 2})
    merged = three_way(BEFORE, after, current)
    assert (merged.name, merged.properties) == ("task", {"a": "task", "b": 2})


def test_traits_are_merged_one_by_one() -> None:
    """Rules and the API's calls may both change traits while an inspection is processed."""
    before = changed(attributes={"traits": ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"], "lessee": "p"})
    task = changed(attributes={"traits": ["CUSTOM_B", "CUSTOM_C", "CUSTOM_TASK"], "lessee": "p"})
    caller = changed(attributes={"traits": ["CUSTOM_A", "CUSTOM_B", "CUSTOM_CALLER"], "lessee": "q"})
    merged = three_way(before, task, caller)
    assert merged.attributes == {"traits": ["CUSTOM_B", "CUSTOM_CALLER", "CUSTOM_TASK"], "lessee": "q"}
    gone = changed(attributes={"lessee": "p"})
    assert three_way(before, gone, before).attributes == {"lessee": "p"}
    assert three_way(gone, task, gone).attributes == task.attributes
    assert three_way(before, gone, caller).attributes == {"traits": ["CUSTOM_CALLER"], "lessee": "q"}


def test_what_belongs_to_the_transition_and_the_store_is_never_taken_from_the_task() -> None:
    after = changed(
        uuid="other",
        state=State.ERROR,
        provision_state=Provision.AVAILABLE,
        target_provision_state="x",
        inspection="old",
        version=99,
        created_at=99.0,
        updated_at=99.0,
    )
    assert three_way(BEFORE, after, BEFORE) == BEFORE


DOCUMENTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_documents_merge_key_by_key(before: dict[str, int], after: dict[str, int], current: dict[str, int]) -> None:
    merged = three_way(changed(extra=before), changed(extra=after), changed(extra=current)).extra
    for key in "abcd":
        untouched = before.get(key) == after.get(key)
        assert merged.get(key) == (current if untouched else after).get(key), key


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_merging_changes_none_of_its_arguments(
    before: dict[str, int], after: dict[str, int], current: dict[str, int]
) -> None:
    copies = [dict(document) for document in (before, after, current)]
    three_way(changed(extra=before), changed(extra=after), changed(extra=current))
    assert [before, after, current] == copies
