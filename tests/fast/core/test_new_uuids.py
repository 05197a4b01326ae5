"""Random UUIDs as texts."""

from __future__ import annotations

import uuid

from ferroscope.core.values import new_uuid


def test_new_uuids_are_canonical_of_version_4_and_all_different() -> None:
    found = [new_uuid() for _ in range(500)]
    for text in found:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
    assert len(set(found)) == len(found)
