"""``ferroscope sync``: what is refused before anything is sent."""

from __future__ import annotations

import pytest

from ferroscope.cli.exits import Exit
from tests.integration.cli.console import Shell
from tests.support.processes import free_port

WHERE = ("--location", "lab", "--role", "Server")


@pytest.mark.parametrize(
    "options",
    [
        ["--nautobot-url", "nautobot.example.org"],
        ["--nautobot-url", "http://nautobot.example.org"],
        ["--nautobot-url", "https://nautobot.example.org", "--nautobot-token", "Canary-5d"],
        ["--nautobot-url", "https://nautobot.example.org", "--nautobot-token", "secret://env/HOME"],
        ["--nautobot-url", "https://nautobot.example.org", "--nautobot-token", "secret://file/no/such/file"],
        ["--nautobot-url", "https://nautobot.example.org", "--nautobot-token", "secret://vault/x"],
    ],
)
def test_a_wrong_url_or_token_is_a_usage_error(shell: Shell, options: list[str]) -> None:
    assert "Canary" not in shell("sync", "nautobot", *options, *WHERE, check=Exit.USAGE).output


def test_a_nautobot_that_does_not_answer_is_a_failure(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTOBOT_TOKEN", "Canary-5d")
    url = f"http://127.0.0.1:{free_port()}"
    assert "Canary" not in shell("sync", "nautobot", "--nautobot-url", url, *WHERE, check=Exit.FAILURE).output
