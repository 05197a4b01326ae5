"""What driver_info may say of a Redfish service, and what it is told where it says it wrongly."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from ferroscope.adapters.driver_info import problem
from ferroscope.adapters.redfish.info import PROPERTIES, read, tls_context

ADDRESS = {"redfish_address": "https://192.0.2.10"}


def test_the_least_is_an_address() -> None:
    access = read(ADDRESS)
    assert (access.url, access.system, access.username, access.verify) == ("https://192.0.2.10", None, None, True)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("192.0.2.10", "https://192.0.2.10"),
        ("bmc-7.example.org:8443", "https://bmc-7.example.org:8443"),
        ("http://[2001:db8::7]:8000/", "http://[2001:db8::7]:8000"),
    ],
)
def test_an_address_without_a_scheme_is_https(address: str, url: str) -> None:
    assert read({"redfish_address": address}).url == url


@pytest.mark.parametrize(
    ("value", "verify"),
    [(True, True), (False, False), ("True", True), ("no", False), ("/etc/ssl/bmc.pem", "/etc/ssl/bmc.pem")],
)
def test_how_certificates_are_verified(value: object, verify: object) -> None:
    assert read(ADDRESS | {"redfish_verify_ca": value}).verify == verify


def test_tls_is_as_everywhere_unless_the_node_says_otherwise() -> None:
    assert tls_context(read(ADDRESS)) is None
    context = tls_context(read(ADDRESS | {"redfish_tls_minimum_version": 1.2, "redfish_tls_ciphers": "AES256-SHA"}))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert "AES256-SHA" in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize(
    ("system", "path"),
    [("1", "/redfish/v1/Systems/1"), ("/redfish/v1/Systems/1", "/redfish/v1/Systems/1"), ("", None)],
)
def test_which_system_is_meant(system: str, path: str | None) -> None:
    assert read(ADDRESS | {"redfish_system_id": system}).system == path


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({}, "redfish_address"),
        ({"redfish_address": 7}, "redfish_address must be a text"),
        ({"redfish_address": "ftp://192.0.2.1"}, "http or https"),
        ({"redfish_address": "https://[::1"}, "no URL"),
        ({"redfish_address": "https://host:port"}, "no URL"),
        ({"redfish_address": "https://192.0.2.1/redfish/v1"}, "redfish_root_prefix"),
        ({"redfish_address": "https://u:secret@192.0.2.1"}, "must not contain credentials"),
        (ADDRESS | {"redfish_password": "secret"}, "redfish_username is not"),
        (ADDRESS | {"redfish_auth_type": "magic"}, "auto, session, basic"),
        (ADDRESS | {"redfish_auth_type": "session"}, "needs redfish_username"),
        (ADDRESS | {"redfish_tls_minimum_version": "1.0"}, "1.1, 1.2, 1.3"),
        (ADDRESS | {"redfish_tls_ciphers": "NONE-SUCH"}, "no cipher"),
        (ADDRESS | {"redfish_verify_ca": 3}, "redfish_verify_ca must be"),
        (ADDRESS | {"redfish_system_id": "https://elsewhere/1"}, "must be a path"),
    ],
)
def test_what_is_wrong_is_said_without_any_secret(info: dict[str, Any], said: str) -> None:
    message = problem(read, info)
    assert message is not None
    assert said in message
    assert "secret" not in message


def test_the_password_is_not_in_the_representation() -> None:
    assert "hush" not in repr(read(ADDRESS | {"redfish_username": "u", "redfish_password": "hush"}))


def test_every_property_that_is_read_is_described() -> None:
    assert {"redfish_address", "redfish_system_id", "redfish_username", "redfish_password"} < set(PROPERTIES)
