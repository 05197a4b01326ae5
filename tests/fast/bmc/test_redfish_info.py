"""What driver_info may say of a Redfish service, and what it is told where it says it wrongly."""

from __future__ import annotations

import ssl
from functools import partial
from typing import Any

from ferroscope.bmc import BmcLimits
from ferroscope.bmc.redfish.driver import read_access
from ferroscope.contracts.bmc import problem
from ferroscope.remote.addresses import Networks
from ferroscope_client.core.bmc_place import places
from tests.support.rows import each

ADDRESS = {"redfish_address": "https://192.0.2.10"}


def test_the_least_is_an_address() -> None:
    access = read_access(ADDRESS)
    assert (access.url, access.system, access.username, access.verify) == ("https://192.0.2.10", None, None, True)


@each(
    ("address", "url"),
    [
        ("192.0.2.10", "https://192.0.2.10"),
        ("bmc-7.example.org:8443", "https://bmc-7.example.org:8443"),
        ("http://[2001:db8::7]:8000/", "http://[2001:db8::7]:8000"),
        ("2001:db8::7", "https://[2001:db8::7]"),
        (" https://192.0.2.10/ \n", "https://192.0.2.10"),
    ],
)
def test_an_address_without_a_scheme_is_https(address: str, url: str) -> None:
    assert read_access({"redfish_address": address}).url == url


@each(
    ("value", "verify"),
    [
        (True, True),
        (None, True),
        ("", True),
        (False, False),
        ("True", True),
        ("no", False),
        ("rack7/ca.pem", "/etc/ferroscope/ca/rack7/ca.pem"),
        ("/etc/ferroscope/ca/x.pem", "/etc/ferroscope/ca/x.pem"),
        ("/etc/ferroscope/ca", "/etc/ferroscope/ca"),
    ],
)
def test_how_certificates_are_verified(value: object, verify: object) -> None:
    assert read_access(ADDRESS | {"redfish_verify_ca": value}).verify == verify


@each("path", ["/etc/shadow", "/root", "../shadow", "/etc/ferroscope/ca/../x", "/etc/ferroscope/cab", "a\0b"])
def test_a_ca_file_elsewhere_is_refused_whether_it_exists_or_not(path: str) -> None:
    message = problem(read_access, ADDRESS | {"redfish_verify_ca": path})
    assert message == problem(read_access, ADDRESS | {"redfish_verify_ca": "/none/such"})


def test_no_password_goes_over_http_unless_that_is_allowed() -> None:
    info = {"redfish_address": "http://192.0.2.10", "redfish_username": "u", "redfish_password": "secret"}
    assert problem(read_access, info) is not None
    assert problem(partial(read_access, limits=BmcLimits(http_passwords=True)), info) is None
    assert problem(read_access, info | {"redfish_password": ""}) is None


@each(
    ("address", "refused"),
    [
        ("https://192.0.2.10", False),
        ("https://198.51.100.1", True),
        ("https://[::ffff:192.0.2.9]", False),
        ("https://[2001:db8::1]", True),
        ("bmc.example", False),
        ("127.0.0.1", True),
        ("https://2130706433", True),
    ],
)
def test_an_address_outside_of_the_networks_is_refused(address: str, refused: bool) -> None:
    limits = BmcLimits(networks=Networks(["192.0.2.0/24"]))
    assert (problem(partial(read_access, limits=limits), {"redfish_address": address}) is not None) is refused


def test_tls_is_as_everywhere_unless_the_node_says_otherwise() -> None:
    assert read_access(ADDRESS).tls_context() is None
    access = read_access(ADDRESS | {"redfish_tls_minimum_version": 1.2, "redfish_tls_ciphers": "AES256-SHA"})
    context = access.tls_context()
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert "AES256-SHA" in {cipher["name"] for cipher in context.get_ciphers()}


@each(
    ("system", "path"),
    [
        ("1", "/redfish/v1/Systems/1"),
        (1, "/redfish/v1/Systems/1"),
        ("/redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
        ("redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
        (" /redfish/v1/Systems/1\n", "/redfish/v1/Systems/1"),
        ("", None),
        (None, None),
    ],
)
def test_which_system_is_meant(system: object, path: str | None) -> None:
    assert read_access(ADDRESS | {"redfish_system_id": system}).system == path


@each(
    ("path", "system"),
    [
        ("", None),
        ("/", None),
        ("/redfish", None),
        ("/redfish/v1", None),
        ("/redfish/v1/", None),
        ("/redfish/v1/Systems/", None),
        ("/redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
        ("/redfish/v1/Systems/System.Embedded.1/", "/redfish/v1/Systems/System.Embedded.1"),
    ],
)
def test_an_address_may_end_with_the_path_of_the_service_or_of_the_system(path: str, system: str | None) -> None:
    """metal3-io/baremetal-operator#2418, tinkerbell/rufio#313."""
    for host in ("https://192.0.2.10:8443", "192.0.2.10:8443", "https://[2001:db8::7]"):
        access = read_access({"redfish_address": host + path})
        assert (access.url.removeprefix("https://"), access.system) == (host.removeprefix("https://"), system)
    named = {"redfish_address": f"https://192.0.2.10{path}", "redfish_system_id": "2"}
    assert read_access(named).system == "/redfish/v1/Systems/2"
    (place,) = places({"redfish_address": f"https://192.0.2.10{path}"})
    assert place == places({"redfish_address": "https://192.0.2.10", "redfish_system_id": system})[0]


def test_what_yaml_reads_as_a_number_is_a_text() -> None:
    access = read_access(ADDRESS | {"redfish_username": 7, "redfish_password": 123456, "redfish_auth_type": "Basic"})
    assert (access.username, access.password, access.auth_type) == ("7", "123456", "basic")


@each("prefix", ["/", "//", "/redfish/v1", " redfish/v1/ "])
def test_the_prefix_of_the_root_has_one_slash_at_each_end(prefix: str) -> None:
    assert read_access(ADDRESS | {"redfish_root_prefix": prefix}).root in ("/", "/redfish/v1/")


@each(
    ("info", "said"),
    [
        ({}, "redfish_address"),
        ({"redfish_address": 7.5}, "redfish_address must be a string"),
        ({"redfish_address": "https://192.0.2.1 192.0.2.2"}, "redfish_address"),
        ({"redfish_address": "ftp://192.0.2.1"}, "redfish_address"),
        ({"redfish_address": "https://[::1"}, "redfish_address"),
        ({"redfish_address": "https://host:port"}, "redfish_address"),
        ({"redfish_address": "https://192.0.2.1/bmc/redfish/v1"}, "redfish_root_prefix"),
        # https://github.com/metal3-io/baremetal-operator/issues/896
        ({"redfish_address": "https://192.0.2.1/redfish/v1/Managers/1"}, "redfish_system_id"),
        ({"redfish_address": "https://192.0.2.1/redfish/v1/Systems/1/Bios"}, "redfish_system_id"),
        ({"redfish_address": "https://u:secret@192.0.2.1"}, "redfish_password"),
        (ADDRESS | {"redfish_password": "secret"}, "redfish_username is not"),
        (ADDRESS | {"redfish_auth_type": "magic"}, "auto, session, basic"),
        (ADDRESS | {"redfish_auth_type": "session"}, "redfish_username"),
        (ADDRESS | {"redfish_tls_minimum_version": "1.0"}, "1.1, 1.2, 1.3"),
        (ADDRESS | {"redfish_tls_ciphers": "NONE-SUCH"}, "redfish_tls_ciphers"),
        (ADDRESS | {"redfish_verify_ca": 3}, "redfish_verify_ca must be"),
        (ADDRESS | {"redfish_system_id": "https://elsewhere/1"}, "redfish_system_id"),
        (ADDRESS | {"redfish_system_id": "/redfish/v1/"}, "not of a system"),
        (ADDRESS | {"redfish_system_id": "redfish/v1/Systems"}, "not of a system"),
        (ADDRESS | {"redfish_system_id": "/"}, "not of a system"),
    ],
)
def test_what_is_wrong_is_said_without_any_secret(info: dict[str, Any], said: str) -> None:
    message = problem(read_access, info)
    assert message is not None
    assert said in message
    assert "secret" not in message


def test_the_password_is_not_in_the_representation() -> None:
    assert "hush" not in repr(read_access(ADDRESS | {"redfish_username": "u", "redfish_password": "hush"}))
