"""``db.rules.Rules`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError, LostUpdateError, NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Rule, RuleDialect
from ferroscope.db import Transaction
from tests.store.conftest import Adapter
from tests.support import examples


def add(adapter: Adapter, **fields: object) -> Rule:
    rule = examples.rule(**fields)
    adapter.write(lambda tx: tx.rules.add(rule))
    return adapter.read(lambda tx: tx.rules.get(rule.uuid))


def revision(adapter: Adapter) -> int:
    return adapter.read(lambda tx: tx.rules.revision())


def test_every_field_comes_back_as_it_was_stored(adapter: Adapter) -> None:
    rule = examples.rule(
        dialect=RuleDialect.INTROSPECTION,
        description="ein Test 😀",
        priority=-7,
        phase="main",
        sensitive=True,
        scope="rack 1",
        conditions=[{"op": "!eq", "args": {"values": [1, "1", None, 1.5]}, "loop": {"a": []}}],
        actions=[{"op": "fail", "args": {"msg": "no {inventory[cpu]}"}}],
        created_at=1_700_000_000.5,
    )
    adapter.write(lambda tx: tx.rules.add(rule))
    assert adapter.read(lambda tx: tx.rules.get(rule.uuid)) == rule


def test_a_taken_uuid_is_a_conflict(adapter: Adapter) -> None:
    rule = add(adapter)
    with pytest.raises(ConflictError) as error:
        adapter.write(lambda tx: tx.rules.add(examples.rule(uuid=rule.uuid)))
    assert (error.value.field, error.value.value) == ("uuid", rule.uuid)
    assert adapter.read(lambda tx: tx.rules.get(rule.uuid)) == rule


def test_a_change_is_saved_with_its_time_and_keeps_the_time_of_creation(adapter: Adapter) -> None:
    rule = add(adapter, created_at=5.0)
    wanted = msgspec.structs.replace(rule, description="new", priority=3, sensitive=True, created_at=9.0)
    returned = adapter.write(lambda tx: tx.rules.update(wanted))
    assert returned.updated_at is not None
    stored = adapter.read(lambda tx: tx.rules.get(rule.uuid))
    assert stored == msgspec.structs.replace(wanted, updated_at=returned.updated_at, created_at=5.0)


def test_an_unknown_rule_is_not_found_and_nothing_counts_as_a_change(adapter: Adapter) -> None:
    unknown, before = examples.rule(), revision(adapter)
    for work in (
        lambda tx: tx.rules.get(unknown.uuid),
        lambda tx: tx.rules.update(unknown),
        lambda tx: tx.rules.remove(unknown.uuid),
    ):
        with pytest.raises(NotFoundError) as error:
            adapter.write(work)
        assert (error.value.kind, error.value.ident) == ("rule", unknown.uuid)
    assert revision(adapter) == before


def test_the_revision_grows_with_every_change(adapter: Adapter) -> None:
    seen = [revision(adapter)]
    rule = add(adapter)
    seen.append(revision(adapter))
    adapter.write(lambda tx: tx.rules.update(rule))
    seen.append(revision(adapter))
    adapter.write(lambda tx: tx.rules.remove(rule.uuid))
    seen.append(revision(adapter))
    adapter.write(lambda tx: tx.rules.remove_all())
    seen.append(revision(adapter))
    assert seen == sorted(set(seen))


def test_a_change_that_is_rolled_back_leaves_the_revision(adapter: Adapter) -> None:
    before = revision(adapter)

    def work(tx: Transaction) -> None:
        tx.rules.add(examples.rule())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        adapter.write(work)
    assert revision(adapter) == before
    assert list(adapter.read(lambda tx: tx.rules.list(Query()))) == []


def test_all_rules_of_one_dialect_are_removed_or_all_of_them(adapter: Adapter) -> None:
    mine, theirs, third = add(adapter), add(adapter, dialect=RuleDialect.INTROSPECTION), add(adapter)
    assert adapter.write(lambda tx: tx.rules.remove_all(RuleDialect.INTROSPECTION)) == 1
    left = {rule.uuid for rule in adapter.read(lambda tx: tx.rules.list(Query()))}
    assert left == {mine.uuid, third.uuid} != {theirs.uuid}
    assert adapter.write(lambda tx: tx.rules.remove_all()) == 2
    assert list(adapter.read(lambda tx: tx.rules.list(Query()))) == []


def test_lists_are_filtered_sorted_and_paged(adapter: Adapter) -> None:
    rules = [add(adapter, priority=priority, created_at=float(priority)) for priority in (2, 1, 3)]
    other = add(adapter, dialect=RuleDialect.INTROSPECTION, priority=9, created_at=9.0)
    rules.sort(key=lambda rule: rule.priority)
    query = Query(filters={"dialect": "bare-metal"}, sort_key="priority", limit=2)
    first = adapter.read(lambda tx: tx.rules.list(query))
    assert list(first) == rules[:2]
    rest = adapter.read(lambda tx: tx.rules.list(msgspec.structs.replace(query, marker=first[-1].uuid)))
    assert list(rest) == rules[2:]
    newest = adapter.read(lambda tx: tx.rules.list(Query(descending=True, limit=1)))
    assert list(newest) == [other]
    with pytest.raises(NotFoundError):
        adapter.read(lambda tx: tx.rules.list(Query(marker=examples.uuid())))


def test_a_struct_is_not_written_after_its_own_transaction_wrote_the_rule(adapter: Adapter) -> None:
    rule = add(adapter)

    def twice(tx: Transaction) -> None:
        tx.rules.update(msgspec.structs.replace(rule, priority=1))
        tx.rules.update(msgspec.structs.replace(rule, description="lost"))

    with pytest.raises(LostUpdateError, match=rule.uuid):
        adapter.write(twice)
    assert adapter.read(lambda tx: tx.rules.get(rule.uuid)) == rule
