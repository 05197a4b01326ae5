"""Webhooks against real HTTP and HTTPS servers: what is sent, what counts as confirmed, and where it may go."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.messaging_options import WebhookTarget
from ferroscope.contracts.plugins import SecretSourceError
from ferroscope.contracts.remote import SendError
from ferroscope.core.notification import OutboxEvent
from ferroscope.remote.addresses import Networks
from ferroscope.remote.webhook import Webhook
from tests.support.bad_server import a_server_that
from tests.support.certificates import Authority
from tests.support.consumer import is_signed
from tests.support.http_target import HttpTarget

EVENT = OutboxEvent(
    target="t",
    event="0b9d7b1e-6a3f-4a5e-8a55-6d0a1f0e9a11",
    type="inspection.finished",
    node="5f2c0e9c-4f0d-4a51-9d1b-3b8d5a3a7c10",
    data={"node": {"name": "räck-1"}},
    at=1_700_000_000.25,
)


@pytest.fixture
def consumer() -> Iterator[HttpTarget]:
    with HttpTarget() as server:
        server.statuses = [204]
        yield server


def webhook(url: str, networks: tuple[str, ...] = (), resolve: Any = None, **fields: Any) -> Webhook:
    target = WebhookTarget(name="t", url=url, **fields)
    return Webhook(target, source="/ferroscope/lab", networks=Networks(networks), resolve=resolve)


def failure(sender: Webhook) -> SendError:
    with pytest.raises(SendError) as error:
        sender.send(EVENT)
    return error.value


def test_a_cloud_event_is_sent_in_structured_mode(consumer: HttpTarget) -> None:
    webhook(f"{consumer.url}/hook?x=1").send(EVENT)
    ((path, headers, body),) = consumer.seen
    assert path == "/hook?x=1"
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert "webhook-signature" not in headers
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": EVENT.event,
        "source": "/ferroscope/lab",
        "type": "ferroscope.inspection.finished",
        "subject": EVENT.node,
        "time": "2023-11-14T22:13:20.250000Z",
        "datacontenttype": "application/json",
        "data": {"node": {"name": "räck-1"}},
    }


def test_it_is_signed_with_the_secret_of_a_file_which_may_change(consumer: HttpTarget, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n")
    sender = webhook(f"{consumer.url}/hook?x=1", secret=str(file))
    sender.send(EVENT)
    file.write_text("second")
    sender.send(EVENT)
    (_, first, body), (_, second, _) = consumer.seen
    assert is_signed(first, body, "first")
    assert is_signed(second, body, "second")
    assert not is_signed(second, body, "first")
    assert not is_signed(second, body + b" ", "second")
    assert first["webhook-id"] == EVENT.event
    assert consumer.connections == 1  # persistent


def test_a_secret_may_be_a_reference_and_in_base64(consumer: HttpTarget) -> None:
    encoded = base64.b64encode(b"\x00key").decode()
    asked: list[str] = []

    def resolve(name: str) -> str:
        asked.append(name)
        return f"whsec_{encoded}"

    webhook(f"{consumer.url}/hook?x=1", secret="secret://file/hook", resolve=resolve).send(EVENT)
    ((_, headers, body),) = consumer.seen
    assert asked == ["secret://file/hook"]
    assert is_signed(headers, body, "\x00key")


def test_a_secret_that_cannot_be_read_is_reported_and_nothing_is_sent(consumer: HttpTarget, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(FileNotFoundError):
        webhook(f"{consumer.url}/hook?x=1", secret=str(file))
    file.write_text(" \n")
    with pytest.raises(SecretSourceError):
        webhook(f"{consumer.url}/hook?x=1", secret=str(file))
    file.write_text("good")
    sender = webhook(f"{consumer.url}/hook?x=1", secret=str(file))
    file.unlink()
    assert failure(sender).unreachable
    assert consumer.seen == []


@pytest.mark.parametrize(("status", "refused"), [(503, False), (404, False), (422, True), (413, True)])
def test_any_other_status_than_2xx_is_a_failure_and_some_are_for_good(
    consumer: HttpTarget, status: int, refused: bool
) -> None:
    consumer.statuses = [status]
    error = failure(webhook(f"{consumer.url}/hook?x=1"))
    assert (str(error), error.refused, error.unreachable) == (f"HTTP {status}", refused, False)


def test_a_consumer_may_ask_to_be_left_alone(consumer: HttpTarget) -> None:
    consumer.statuses, consumer.headers = [429], {"Retry-After": "17"}
    assert failure(webhook(f"{consumer.url}/hook?x=1")).retry_after == 17.0
    consumer.headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert failure(webhook(f"{consumer.url}/hook?x=1")).retry_after == 0.0


def test_redirects_are_not_followed(consumer: HttpTarget) -> None:
    with HttpTarget() as other:
        consumer.statuses, consumer.headers = [307], {"Location": other.url}
        assert "redirects" in str(failure(webhook(f"{consumer.url}/hook?x=1")))
        consumer.headers = {"Location": "/elsewhere"}
        assert "redirects" in str(failure(webhook(f"{consumer.url}/hook?x=1")))
    assert other.seen == []
    assert len(consumer.seen) == 2


@pytest.mark.parametrize(
    "sends",
    [
        [],
        [b"HTTP/1.1 200 OK\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"],
        [b"nonsense\r\n\r\n"],
    ],
)
def test_half_an_answer_confirms_nothing(sends: list[bytes]) -> None:
    with a_server_that(sends) as port:
        assert failure(webhook(f"http://127.0.0.1:{port}/", timeout=1.0)).unreachable


def test_an_answer_may_take_the_time_out_in_all_and_no_longer() -> None:
    with a_server_that((b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * 1000), pause=0.05) as port:
        assert str(failure(webhook(f"http://127.0.0.1:{port}/", timeout=0.5))) == "no response within 0.5 s"


def test_a_very_long_answer_is_not_read_to_its_end() -> None:
    with a_server_that([b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", b"x" * 100_000], pause=0.01) as port:
        webhook(f"http://127.0.0.1:{port}/", timeout=20.0).send(EVENT)


def test_only_allowed_networks_are_reached(consumer: HttpTarget) -> None:
    webhook(f"{consumer.url}/hook?x=1", ("127.0.0.0/8",)).send(EVENT)
    error = failure(webhook(f"{consumer.url}/hook?x=1", ("10.0.0.0/8",)))
    assert "[notifications] networks" in str(error)
    assert len(consumer.seen) == 1


def test_https_needs_a_certificate_of_a_known_authority(consumer: HttpTarget, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("consumer")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    consumer.socket = context.wrap_socket(consumer.socket, server_side=True)
    url = consumer.url.replace("http:", "https:")
    assert failure(webhook(url)).unreachable
    webhook(url, ca_file=str(authority.ca)).send(EVENT)
    assert len(consumer.seen) == 1
