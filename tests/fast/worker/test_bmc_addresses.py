"""The addresses by which a BMC may call itself: literals, URLs, names with several addresses."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.core.model import Node
from ferroscope.worker.start import resolve_addresses
from tests.support.rows import each


def addresses(**info: Any) -> frozenset[str]:
    return resolve_addresses(Node(uuid="x", driver="redfish", driver_info=info), seconds=0.2)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bmc.example have three addresses."""

    def getaddrinfo(host: str, *_rest: object, **_more: object) -> list[Any]:
        if host != "bmc.example":
            raise OSError(-2, "Name or service not known")
        return [(2, 1, 6, "", (text, 0)) for text in ("192.0.2.7", "192.0.2.8", "2001:DB8::7", "127.0.0.1")]

    monkeypatch.setattr("ferroscope.remote.addresses.socket.getaddrinfo", getaddrinfo)


@each(
    ("value", "expected"),
    [
        ("192.0.2.7", {"192.0.2.7"}),
        ("https://192.0.2.7:8443/", {"192.0.2.7"}),
        ("http://[2001:DB8::7]:8000", {"2001:db8::7"}),
        ("[2001:db8::7]", {"2001:db8::7"}),
        ("2001:0db8:0::7", {"2001:db8::7"}),
        ("https://127.0.0.1:8000", set()),
        ("https://[::1", set()),
    ],
)
def test_literal_addresses_in_every_spelling(value: str, expected: set[str]) -> None:
    assert addresses(redfish_address=value) == expected


@pytest.mark.parametrize("value", ["bmc.example", "https://BMC.example", "https://bmc.example:8443/redfish"])
def test_a_name_stands_for_all_its_addresses(names: None, value: str) -> None:
    assert addresses(redfish_address=value) == {"bmc.example", "192.0.2.7", "192.0.2.8", "2001:db8::7"}


def test_every_address_field_counts(names: None) -> None:
    found = addresses(ipmi_address="192.0.2.9", redfish_address="https://bmc.example", ipmi_port="623")
    assert {"192.0.2.9", "192.0.2.7"} < found


def test_a_name_that_does_not_resolve_stays_as_it_is(names: None) -> None:
    assert addresses(ipmi_address="gone.example") == {"gone.example"}


def test_the_address_of_a_bmc_in_between_is_not_the_machines() -> None:
    assert addresses(ipmi_address="192.0.2.9", ipmi_bridging="single") == set()
    assert addresses(ipmi_address="192.0.2.9", ipmi_bridging="no") == {"192.0.2.9"}
