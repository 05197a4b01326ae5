"""The addresses of BMCs when the name server does not answer: nobody waits for long, and one thread does."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ferroscope.core.model import Node
from ferroscope.remote import resolver
from ferroscope.worker.bmc import resolve_addresses
from tests.support.processes import PATIENCE


def addresses(**info: Any) -> frozenset[str]:
    return resolve_addresses(Node(uuid="x", driver="redfish", driver_info=info), seconds=0.2)


def test_a_name_server_that_never_answers_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked = threading.Event(), []

    def hang(host: str, *_rest: object, **_more: object) -> list[Any]:
        asked.append(host)
        answered.wait(PATIENCE)
        return []

    monkeypatch.setattr(resolver.socket, "getaddrinfo", hang)
    try:
        assert addresses(redfish_address="slow.example") == {"slow.example"}
        assert addresses(redfish_address="slow.example") == {"slow.example"}
        assert not answered.is_set()
    finally:
        answered.set()
    assert asked == ["slow.example"]
