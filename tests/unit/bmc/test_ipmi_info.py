"""What driver_info may say of an IPMI BMC, and what it is told where it says it wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.adapters.ipmi.info import problem, read

ADDRESS = {"ipmi_address": "192.0.2.10"}


def test_the_least_is_an_address() -> None:
    access = read(ADDRESS)
    assert (access.host, access.port, access.level, access.cipher, access.interface) == (
        "192.0.2.10",
        623,
        "ADMINISTRATOR",
        None,
        "lanplus",
    )


def test_numbers_may_be_written_as_text() -> None:
    access = read(ADDRESS | {"ipmi_port": "6230", "ipmi_cipher_suite": "3"})
    assert (access.port, access.cipher) == (6230, 3)


def test_an_ipv6_address_loses_its_brackets() -> None:
    assert read({"ipmi_address": "[2001:db8::7]"}).host == "2001:db8::7"


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({}, "ipmi_address"),
        ({"ipmi_address": "host; reboot"}, "a host name"),
        ({"ipmi_address": "-oProxy"}, "a host name"),
        (ADDRESS | {"ipmi_port": 0}, "from 1 to 65535"),
        (ADDRESS | {"ipmi_port": True}, "from 1 to 65535"),
        (ADDRESS | {"ipmi_cipher_suite": "x"}, "from 0 to 255"),
        (ADDRESS | {"ipmi_password": "secret" * 4}, "at most 20 bytes"),
        (ADDRESS | {"ipmi_password": "sec\nret"}, "one line"),
        (ADDRESS | {"ipmi_username": "-P secret"}, "dash"),
        (ADDRESS | {"ipmi_priv_level": "ROOT"}, "ADMINISTRATOR"),
        (ADDRESS | {"ipmi_protocol_version": "3"}, "2.0, 1.5"),
        (ADDRESS | {"ipmi_bridging": "single"}, "not supported"),
    ],
)
def test_what_is_wrong_is_said_without_any_secret(info: dict[str, Any], said: str) -> None:
    message = problem(info)
    assert message is not None
    assert said in message
    assert "secret" not in message


def test_the_password_is_not_in_the_representation() -> None:
    assert "hush" not in repr(read(ADDRESS | {"ipmi_password": "hush"}))
