"""``ferroscope audit``."""

from __future__ import annotations

import pytest

from ferroscope_client.errors import Exit
from tests.system.cli.console import Shell


def test_changes_are_listed_newest_first(running: Shell) -> None:
    running("node", "create", "audited", "--driver", "fake-hardware", check=0)
    running("node", "set", "audited", "-e", "a=1", check=0)
    changed, created = running.json("audit", "--node", "audited", "--since", "1h")["events"]
    assert [changed["call"], created["call"]] == ["PATCH /v1/nodes/{node}", "POST /v1/nodes"]
    assert changed["node"] == created["node"]
    assert len(running.json("audit", "--limit", "1")["events"]) == 1
    assert any(changed["request_id"][:12] in line for line in running.lines("audit", "--node", "audited"))
    assert running.json("audit", "--user", "nobody") == {"events": []}
    running("node", "delete", "audited", "--yes", check=0)


@pytest.mark.parametrize("span", ["1", "h", "1y", "-1h"])
def test_a_span_needs_a_number_and_a_unit(running: Shell, span: str) -> None:
    running("audit", "--since", span, check=Exit.USAGE)
