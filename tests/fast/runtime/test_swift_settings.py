"""What ``[swift]`` has to say before anybody is asked."""

from __future__ import annotations

import threading

import pytest

from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings, SwiftSettings
from ferroscope.storage.object_http import StorageAccess, problem
from ferroscope.storage.stores import build_object_stores
from tests.support.rows import each

USER = {"username": "u", "password": "hush"}
APPLICATION = {"application_credential_id": "i", "application_credential_secret": "hush"}


@each(
    "settings",
    [USER | {"project_name": "p"}, USER | {"auth_version": "1"}, APPLICATION],
)
def test_what_is_enough(settings: dict[str, str]) -> None:
    assert problem(SwiftSettings(**settings)) is None  # type: ignore[arg-type]


@each(
    ("settings", "said"),
    [
        ({}, "username and password and project_name"),
        (USER, "project_name"),
        ({"auth_version": "1", "username": "u"}, "password"),
        ({"application_credential_id": "i"}, "application_credential_secret"),
        (APPLICATION | {"auth_version": "1"}, "auth_version"),
        (APPLICATION | USER, "username and password"),
    ],
)
def test_what_is_missing_is_said_when_the_service_starts(settings: dict[str, str], said: str) -> None:
    swift = SwiftSettings(auth_url="http://127.0.0.1:1/v3", **settings)  # type: ignore[arg-type]
    with pytest.raises(SetupError) as caught:
        build_object_stores(Settings(swift=swift), threading.Event())
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_token_is_not_in_the_representation() -> None:
    assert "hush" not in repr(StorageAccess("hush", "http://swift"))
