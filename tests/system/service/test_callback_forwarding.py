"""Callbacks that nobody here waits for are forwarded to an ironic-inspector, which may do anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.options import InspectorSettings
from ferroscope.contracts.store import Query
from ferroscope.contrib.openstack.forwarding.forwarder import HEADER
from ferroscope.core.model import FORWARDED
from tests.api.service import Service
from tests.support import examples
from tests.support.bad_server import a_server_that, one_by_one
from tests.support.http_target import HttpTarget
from tests.support.processes import until

THERE = "7b1f7b1f-1111-4111-8111-111111111111"
_OK = b'HTTP/1.1 200 OK\r\nContent-Length: 48\r\n\r\n{"uuid":"%s"}\n' % THERE.encode()


@pytest.fixture
def inspector() -> Iterator[HttpTarget]:
    """Give a server that accepts callbacks, as ironic-inspector does."""
    with HttpTarget() as server:
        server.content = b'{"uuid": "%s"}' % THERE.encode()
        yield server


Start = Callable[..., Service]


@pytest.fixture
def start(sqlite_url: str) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(url: str, **options: Any) -> Service:
            given = {"forward_timeout": 5.0} | options
            service = Service(
                sqlite_url,
                sections={"inspector": InspectorSettings(forward_unknown_to=url, **given)},
                failure_burst=50,
                failure_rate=0.001,
            )
            stack.callback(service.close)
            return service

        yield begin


def callback(mac: str = "", **more: Any) -> dict[str, Any]:
    return {"inventory": {"interfaces": [{"name": "eth0", "mac_address": mac or examples.mac()}]}, **more}


@pytest.mark.parametrize("path", ["/v1/continue", "/v1/continue_inspection"])
def test_the_callback_of_an_unknown_machine_is_forwarded_as_it_is(
    start: Start, inspector: HttpTarget, path: str
) -> None:
    service = start(f"{inspector.url}/v1/continue")
    client = service.client(None) if path.endswith("inspection") else service.introspection
    body = f'{{"inventory": {{"interfaces": [{{"mac_address": "{examples.mac()}"}}]}}, "a":  1}}'
    secrets = {"Authorization": "Basic c2VjcmV0", "X-Auth-Token": "secret", "Cookie": "secret"}
    answer = client.post(f"{path}?secret=secret", body, headers=secrets)
    assert (answer.status_code, answer.json) == (202, {"uuid": THERE})
    ((where, headers, sent),) = inspector.seen
    assert (where, sent) == ("/v1/continue", body.encode())
    assert set(headers) == {"Host", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent", HEADER}


def test_what_is_refused_there_is_refused_here_as_ever(start: Start, inspector: HttpTarget) -> None:
    service, inspector.statuses = start(f"{inspector.url}/v1/continue"), [400]
    refused = service.client(None).post("/v1/continue_inspection", callback())
    assert (refused.status_code, len(inspector.seen)) == (404, 1)
    assert service.introspection.post("/v1/continue", callback()).status_code == 400


def test_a_known_node_that_is_not_inspected_here_may_be_inspected_there(start: Start, inspector: HttpTarget) -> None:
    service, mac = start(f"{inspector.url}/v1/continue"), examples.mac()
    node = service.enrol(name="n")
    service.bare_metal.post("/v1/ports", {"node_uuid": node, "address": mac})
    assert service.introspection.post("/v1/continue", callback(mac)).status_code == 202
    steps = lambda: [one.step for one in service.store.read(lambda tx: tx.journal.list(Query(filters={"node": node})))]  # noqa: E731
    assert FORWARDED in steps()
    inspector.statuses = [400]
    assert service.introspection.post("/v1/continue", callback(mac)).status_code == 400
    assert "callback-refused" in steps()
    service.wait(node, mac=mac)
    assert service.introspection.post("/v1/continue", callback(mac)).status_code == 202
    assert len(inspector.seen) == 2


def test_a_forwarded_callback_is_never_forwarded_again(start: Start, inspector: HttpTarget) -> None:
    service = start(f"{inspector.url}/v1/continue")
    assert service.introspection.post("/v1/continue", callback(), headers={HEADER: "1"}).status_code == 400
    assert inspector.seen == []


def test_who_wants_a_token_or_sends_no_machine_is_not_forwarded(start: Start, inspector: HttpTarget) -> None:
    service = start(f"{inspector.url}/v1/continue")
    assert service.bare_metal.post("/v1/continue_inspection", callback()).status_code == 404
    assert service.introspection.post("/v1/continue", {"inventory": {}}).status_code == 400
    assert inspector.seen == []


@pytest.mark.parametrize(
    "sends",
    [
        [],
        [b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"],
        [b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", b" " * 9_999_999],
        one_by_one(_OK),
        [b"nonsense\r\n\r\n"],
    ],
    ids=["silent", "error", "redirect", "no uuid", "cut off", "large", "slow", "nonsense"],
)
def test_the_machine_shall_try_again_if_there_is_no_valid_answer(start: Start, sends: list[bytes]) -> None:
    with a_server_that(sends, pause=0.1 if len(sends) > 2 else 0.0) as port:
        service = start(f"http://127.0.0.1:{port}/v1/continue", forward_timeout=1.0)
        answer = service.introspection.post("/v1/continue", callback())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


def test_only_so_many_are_forwarded_at_once_and_identical_ones_one_by_one(start: Start, inspector: HttpTarget) -> None:
    service = start(f"{inspector.url}/v1/continue")
    inspector.goes_on.clear()
    first, second = callback(), callback()
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda body=body: statuses.append(service.introspection.post("/v1/continue", body).status_code)
        )
        for body in (first, second)
    ]
    threads[0].start()
    assert until(lambda: len(inspector.seen) == 1)
    assert service.introspection.post("/v1/continue", first).status_code == 503
    threads[1].start()
    assert until(lambda: len(inspector.seen) == 2)
    assert service.introspection.post("/v1/continue", callback()).status_code == 503
    inspector.goes_on.set()
    for thread in threads:
        thread.join()
    assert statuses == [202, 202]
    assert service.introspection.post("/v1/continue", callback()).status_code == 202
    assert len(inspector.seen) == 3


def test_a_source_that_guesses_does_not_burden_the_other_service(start: Start, inspector: HttpTarget) -> None:
    service, inspector.statuses = start(f"{inspector.url}/v1/continue"), [400]
    call = lambda: service.introspection.post("/v1/continue", callback(), remote_addr="192.0.2.9").status_code  # noqa: E731
    statuses = [call() for _ in range(60)]
    assert statuses[-1] == 429
    assert len(inspector.seen) <= 52


_URL = "forward_unknown_to = http://192.0.2.7:5050/v1/continue\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("[inspector]\nforward_unknown_to = 192.0.2.7:5050\n", "forward_unknown_to"),
        ("[inspector]\nforward_unknown_to = http://user:secret@192.0.2.7/\n", "forward_unknown_to"),
        ("[inspector]\nforward_unknown_to = http://192.0.2.7/?secret=x\n", "forward_unknown_to"),
        (f"[api]\nthreads = 2\n[inspector]\n{_URL}", "[api] threads"),
        (f"[inspector]\npermit_active = true\n{_URL}", "permit_active"),
        (f"[inspector]\n{_URL}[auto_discovery]\nenabled = true\n", "[auto_discovery] enabled"),
    ],
)
def test_what_does_not_go_together_is_refused_without_secrets(tmp_path: Path, options: str, named: str) -> None:
    (tmp_path / "f.conf").write_text(options)
    with pytest.raises(ConfigurationError, match="forward") as raised:
        load([str(tmp_path / "f.conf")])
    assert named in str(raised.value)
    assert "secret" not in str(raised.value)
