"""Swift with tokens of a real Keystone: log-ins, ends of tokens, the catalogue, and what is told where it fails."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contrib.openstack.swift import SwiftStore
from ferroscope.storage.object_http import RetryPolicy
from tests.support.bad_server import a_server_that, one_by_one
from tests.support.keystone import DOMAIN, LIFETIME, PASSWORD, PROJECT, USER, Cloud, cloud

# test_object_stores has Swift with its own login, acceptance/test_keystone the logins by Keystone.
HERE = {"region": "two", "interface": "internal"}

Shelf = Callable[..., SwiftStore]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Give a Keystone and a Swift that takes its tokens."""
    with cloud(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """Return a function that makes clients, which are closed after the test."""
    with ExitStack() as stack:

        def make(settings: SwiftSettings, *, timeout: float = 20.0, retries: int = 0) -> SwiftStore:
            return stack.enter_context(closing(SwiftStore(settings, RetryPolicy(timeout=timeout, retries=retries))))

        yield make


def round_trip(store: SwiftStore) -> None:
    store.put("node/one", b"content")
    assert store.get("node/one") == b"content"
    store.delete("node/one")


def test_a_user_of_a_domain_keeps_data_in_a_projects_account(site: Cloud, shelf: Shelf) -> None:
    round_trip(shelf(site.settings(**HERE)))


def test_the_version_may_be_missing_in_the_url(site: Cloud, shelf: Shelf) -> None:
    round_trip(shelf(site.settings(**HERE, auth_url=site.identity.url.removesuffix("/v3"))))


def test_an_application_credential_stands_for_user_and_project(site: Cloud, shelf: Shelf) -> None:
    round_trip(shelf(site.application_settings(**HERE)))


def test_an_endpoint_of_ones_own_is_taken_instead_of_the_catalogues(site: Cloud, shelf: Shelf) -> None:
    store = shelf(site.settings(**HERE))
    store.put("k", b"1")
    assert store._access is not None
    account = store._access.url
    assert account.startswith(f"{site.swift}/v1/AUTH_")
    assert shelf(site.settings(endpoint=account)).get("k") == b"1"


def test_a_token_whose_time_is_over_is_replaced(site: Cloud, shelf: Shelf) -> None:
    store = shelf(site.settings(**HERE))
    store.put("k", b"1")
    first = store._access
    time.sleep(LIFETIME + 1.0)
    assert store.get("k") == b"1"
    assert store._access is not None
    assert store._access != first


def test_a_token_that_was_revoked_is_replaced(site: Cloud, shelf: Shelf) -> None:
    store = shelf(site.settings(**HERE))
    store.put("k", b"1")
    assert store._access is not None
    first = store._access.token
    site.identity.delete_token(first)
    assert store.get("k") == b"1"
    assert store._access.token != first


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"password": "wrong-" + PASSWORD}, "[swift] username, password"),
        ({"username": "nobody"}, "[swift] username, password"),
        ({"user_domain_name": "Default"}, "user_domain_name"),
        ({"project_name": "another"}, "project_name"),
        ({"username": "stranger"}, "project_domain_name"),
        ({"region": "three"}, "public in one, public in two, internal in two"),
        ({"interface": "admin"}, "no admin object-store"),
        ({"username": "onlooker"}, "operator_roles"),
        ({"project_name": ""}, "no object-store"),
    ],
    ids=["password", "user", "domain", "project", "no role", "region", "interface", "role of no use", "no project"],
)
def test_what_is_wrong_is_said_without_any_secret(
    site: Cloud, shelf: Shelf, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], said: str
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = site.settings(**HERE | changes)
    with pytest.raises(ObjectStoreError) as caught:
        shelf(settings).put("k", b"1")
    assert said in str(caught.value)
    assert PASSWORD not in str(caught.value) + caplog.text


def test_a_wrong_application_credential_is_said(site: Cloud, shelf: Shelf) -> None:
    settings = site.application_settings(**HERE, application_credential_secret="not-" + site.application[1])
    with pytest.raises(ObjectStoreError, match="application_credential_id") as caught:
        shelf(settings).get("k")
    assert site.application[1] not in str(caught.value)


def somewhere(url: str) -> SwiftSettings:
    return SwiftSettings(auth_url=url, username=USER, password=PASSWORD, project_name=PROJECT, user_domain_name=DOMAIN)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "404"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "503"),
        (b"HTTP/1.1 201 Yes\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", "invalid response"),
        (
            b"HTTP/1.1 302 There\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "invalid response",
        ),
    ],
    ids=["404", "503", "no token", "a redirect"],
)
def test_what_is_no_keystone_is_reported(shelf: Shelf, answer: bytes, said: str) -> None:
    with a_server_that(one_by_one(answer)) as port, pytest.raises(ObjectStoreError, match=said):
        shelf(somewhere(f"http://127.0.0.1:{port}")).get("k")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 201 Yes\r\nX-Header: " + b"x" * 60000], ids=["nothing", "a trickle"]
)
def test_a_keystone_that_does_not_finish_is_not_waited_for(shelf: Shelf, answer: bytes) -> None:
    with a_server_that(one_by_one(answer), pause=0.01) as port:
        with pytest.raises(ObjectStoreError, match="timed out after 1 s"):
            shelf(somewhere(f"http://127.0.0.1:{port}"), timeout=1.0).get("k")
        assert port.heard_out == 0


def test_nobody_there_is_asked_again_and_then_reported(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda self, at: (asked.append(at), connect(self, at)))
    with pytest.raises(ObjectStoreError, match="cannot reach Keystone"):
        shelf(somewhere("http://127.0.0.1:1/v3"), retries=1).get("k")
    assert asked == [("127.0.0.1", 1)] * 2
