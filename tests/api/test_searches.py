"""One query language: what the command line takes, the API takes, and what neither knows is refused."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.errors import Exit
from tests.api.commands import Commands
from tests.api.service import Service


@pytest.fixture
def ferroscope(service: Service, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name, reason in (("late", Reason.TIMEOUT), ("shut", Reason.BMC_CREDENTIALS)):
        ident = service.enrol(name=name)
        service.wait(ident)
        service.step(ident, Event.FAIL, Fail(reason, "the cause"))
    service.enrol(name="new")
    return Commands(service, monkeypatch)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state == inspect-failed", {"late", "shut"}),
        ("reason == timeout", {"late"}),
        ("not has reason", {"new"}),
    ],
)
def test_a_query_finds_the_same_by_command_and_by_api(
    service: Service, ferroscope: Commands, query: str, names: set[str]
) -> None:
    answer = service.bare_metal.get(f"/v1/search?q={quote(query)}")
    assert {one["name"] for one in answer.json["nodes"]} == names
    found = ferroscope("search", query, "-o", "json")
    assert {one["name"] for one in json.loads(found.stdout)} == names


def test_a_state_that_does_not_exist_is_not_an_empty_result(service: Service, ferroscope: Commands) -> None:
    done = ferroscope("search", "state == inspect-faild")
    assert done.exit_code == Exit.USAGE
    assert "'inspect failed'" in done.stderr
    assert service.bare_metal.get("/v1/search?q=state+%3D%3D+inspect-faild").status_code == 400
