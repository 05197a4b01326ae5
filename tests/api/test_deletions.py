"""``ferroscope node delete`` asks before it deletes what was not named, or has to be told."""

from __future__ import annotations

import pytest

from ferroscope_client.errors import Exit
from tests.api.commands import Commands
from tests.api.service import Service


@pytest.fixture
def ferroscope(service: Service, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in ("r1-u1", "r1-u2"):
        service.enrol(name=name)
    return Commands(service, monkeypatch)


def count(service: Service) -> int:
    return len(service.bare_metal.get("/v1/nodes").json["nodes"])


@pytest.mark.parametrize("words", [["r1-*"], ["--state", "enroll"]])
def test_without_a_terminal_a_selection_is_deleted_with_yes_only(
    service: Service, ferroscope: Commands, words: list[str]
) -> None:
    done = ferroscope("node", "delete", *words)
    assert done.exit_code == Exit.USAGE
    assert "2 nodes would be deleted" in done.stderr
    assert count(service) == 2
    assert ferroscope("node", "delete", *words, "--yes").exit_code == 0
    assert count(service) == 0


def test_a_node_that_is_named_is_deleted_as_by_kubectl(service: Service, ferroscope: Commands) -> None:
    assert ferroscope("node", "delete", "r1-u1").exit_code == 0
    assert count(service) == 1


def test_of_many_nodes_only_the_failures_are_listed(service: Service, ferroscope: Commands) -> None:
    for number in range(21):
        service.enrol(name=f"many-{number}")
    done = ferroscope("node", "set", "many-*", "nosuch", "--owner", "ops", "--yes")
    assert done.exit_code == Exit.NOT_FOUND
    assert "21 changed, 1 failed" in done.stdout
    assert "nosuch" in done.stdout
    assert "many-7" not in done.stdout


def test_an_unknown_node_to_inspect_leads_to_the_list(ferroscope: Commands) -> None:
    done = ferroscope("inspect", "nosuch")
    assert done.exit_code == Exit.NOT_FOUND
    assert "ferroscope node list" in done.output
