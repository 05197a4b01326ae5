"""Another Bare Metal service as the source of nodes: read over HTTP, page by page, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ferroscope.adapters.ironic import source
from ferroscope.adapters.ironic.source import IronicSource
from ferroscope.config.settings import ApiSettings
from ferroscope.domain.model import Node
from ferroscope.ports.registry import RegistryUnavailableError
from ferroscope.runtime.http import HttpServer, listen
from tests.integration.api.service import Service
from tests.support.processes import free_port


@pytest.fixture
def registry(sqlite_url: str) -> Iterator[tuple[Service, str]]:
    """Give a service whose nodes are the registry, and its address."""
    service = Service(sqlite_url)
    socket = listen("127.0.0.1", 0)
    server = HttpServer(service.app, ApiSettings(host="127.0.0.1"), [socket])
    server.start()
    yield service, f"http://127.0.0.1:{socket.getsockname()[1]}"
    server.stop(5)
    service.close()


def enrol(service: Service, number: int) -> set[str]:
    nodes = [Node(uuid=str(uuid.uuid4()), driver="fake-hardware") for _ in range(number)]

    def work(tx) -> None:  # type: ignore[no-untyped-def]
        for node in nodes:
            tx.nodes.add(node)

    service.store.write(work)
    return {node.uuid for node in nodes}


def test_all_nodes_are_read_however_many_pages_they_fill(
    registry: tuple[Service, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, url = registry
    monkeypatch.setattr(source, "_PAGE", 3)
    expected = enrol(service, 10)
    assert IronicSource(url, timeout=5.0, retries=0).tracked() == expected


def test_an_empty_registry_is_an_answer(registry: tuple[Service, str]) -> None:
    assert IronicSource(registry[1] + "/", timeout=5.0, retries=0).tracked() == frozenset()


def test_a_registry_that_is_not_there_is_no_answer() -> None:
    with pytest.raises(RegistryUnavailableError):
        IronicSource(f"http://127.0.0.1:{free_port()}", timeout=1.0, retries=0).tracked()


def test_an_error_of_the_registry_is_no_answer(registry: tuple[Service, str]) -> None:
    with pytest.raises(RegistryUnavailableError, match="404"):
        IronicSource(registry[1] + "/elsewhere", timeout=5.0, retries=0).tracked()
