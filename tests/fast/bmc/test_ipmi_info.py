"""What driver_info may say of an IPMI BMC, and what it is told where it says it wrongly."""

from __future__ import annotations

from typing import Any

from ferroscope.bmc.ipmi.info import read
from ferroscope.contracts.bmc import problem
from tests.support.rows import each

ADDRESS = {"ipmi_address": "192.0.2.10"}
SINGLE = {"ipmi_bridging": "single", "ipmi_target_channel": "0", "ipmi_target_address": "0x82"}
DUAL = SINGLE | {"ipmi_bridging": "dual", "ipmi_transit_channel": 7, "ipmi_transit_address": "0x2c"}


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
    access = read(ADDRESS | {"ipmi_port": " 6230 ", "ipmi_cipher_suite": "3"})
    assert (access.port, access.cipher) == (6230, 3)


def test_json_that_knows_floats_only_is_read_all_the_same() -> None:
    access = read(ADDRESS | {"ipmi_port": 6230.0, "ipmi_cipher_suite": 3.0, "ipmi_protocol_version": 2})
    assert (access.port, access.cipher, access.interface) == (6230, 3, "lanplus")


def test_spaces_around_what_was_copied_do_not_count() -> None:
    access = read({"ipmi_address": " [2001:db8::7]\n", "ipmi_priv_level": "operator "})
    assert (access.host, access.level) == ("2001:db8::7", "OPERATOR")


@each(
    ("info", "options"),
    [
        ({}, ()),
        ({"ipmi_target_channel": "nonsense that nobody reads", "ipmi_bridging": "no"}, ()),
        (SINGLE, ("-b", "0", "-t", "130")),
        (SINGLE | {"ipmi_transit_channel": 7, "ipmi_local_address": 32}, ("-m", "32", "-b", "0", "-t", "130")),
        (DUAL, ("-B", "7", "-T", "44", "-b", "0", "-t", "130")),
    ],
)
def test_bridging_becomes_options_of_ipmitool(info: dict[str, Any], options: tuple[str, ...]) -> None:
    assert read(ADDRESS | info).bridge == options


def test_a_key_loses_the_zeros_that_fill_it_up() -> None:
    assert read(ADDRESS | {"ipmi_hex_kg_key": "6B65790000"}).key == b"key"


def test_a_password_of_digits_may_be_a_number() -> None:
    assert read(ADDRESS | {"ipmi_password": 1234}).password == "1234"


@each(
    ("info", "said"),
    [
        ({}, "ipmi_address"),
        ({"ipmi_address": "host; reboot"}, "a host name"),
        ({"ipmi_address": "192.0.2.10:623"}, "ipmi_port"),
        (ADDRESS | {"ipmi_port": 623.5}, "from 1 to 65535"),
        ({"ipmi_address": "-oProxy"}, "a host name"),
        (ADDRESS | {"ipmi_port": 0}, "from 1 to 65535"),
        (ADDRESS | {"ipmi_port": True}, "from 1 to 65535"),
        (ADDRESS | {"ipmi_cipher_suite": "x"}, "from 0 to 255"),
        (ADDRESS | {"ipmi_password": "secret" * 4}, "at most 20 bytes"),
        (ADDRESS | {"ipmi_password": "sec\nret"}, "one line"),
        (ADDRESS | {"ipmi_username": "-P secret"}, "dash"),
        (ADDRESS | {"ipmi_priv_level": "ROOT"}, "ADMINISTRATOR"),
        (ADDRESS | {"ipmi_protocol_version": "3"}, "2.0, 1.5"),
        (ADDRESS | {"ipmi_protocol_version": "1.5", "ipmi_password": "secret" * 3}, "at most 16 bytes"),
        (ADDRESS | {"ipmi_protocol_version": "1.5", "ipmi_cipher_suite": 3}, "ipmi_cipher_suite"),
        (ADDRESS | {"ipmi_force_boot_device": "perhaps"}, "true or false"),
        (ADDRESS | {"ipmi_disable_boot_timeout": 7}, "true or false"),
        (ADDRESS | {"ipmi_hex_kg_key": "abc"}, "even number"),
        (ADDRESS | {"ipmi_hex_kg_key": "secret"}, "hexadecimal"),
        (ADDRESS | {"ipmi_hex_kg_key": "ab" * 21}, "at most 40"),
        (ADDRESS | {"ipmi_hex_kg_key": "ab00cd"}, "bytes 00"),
        (ADDRESS | {"ipmi_bridging": "triple"}, "no, single, dual"),
        (ADDRESS | {"ipmi_bridging": True}, "no, single, dual"),
        (ADDRESS | {"ipmi_bridging": "single"}, "ipmi_target_channel and ipmi_target_address"),
        (ADDRESS | SINGLE | {"ipmi_bridging": "dual"}, "ipmi_transit_channel and ipmi_transit_address"),
        (ADDRESS | SINGLE | {"ipmi_target_channel": 16}, "from 0 to 15"),
        (ADDRESS | SINGLE | {"ipmi_target_address": "0x100"}, "from 0 to 255"),
        (ADDRESS | SINGLE | {"ipmi_local_address": "-h"}, "from 0 to 255"),
    ],
)
def test_what_is_wrong_is_said_without_any_secret(info: dict[str, Any], said: str) -> None:
    message = problem(read, info)
    assert message is not None
    assert said in message
    assert "secret" not in message


def test_the_password_is_not_in_the_representation() -> None:
    access = read(ADDRESS | {"ipmi_password": "hush", "ipmi_hex_kg_key": b"hush".hex()})
    assert "hush" not in repr(access)
