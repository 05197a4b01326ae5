"""Which texts can be a BMC's password, and which nodes have the same account."""

from __future__ import annotations

import itertools
from typing import Any

from ferroscope.bmc.ipmi.info import PROPERTIES as IPMI
from ferroscope.bmc.redfish.driver import PROPERTIES as REDFISH
from ferroscope.core import bmc_password
from ferroscope.core.model import Node
from ferroscope_client.core import passwords
from ferroscope_client.core.values import is_secret
from tests.support.rows import each


def node(**info: Any) -> Node:
    given = {"redfish_address": "https://bmc", "redfish_username": "root", "redfish_password": "secret"} | info
    return Node(uuid="11111111-1111-4111-8111-111111111111", driver="redfish", driver_info=given)


def test_the_field_is_the_drivers_own_and_the_new_one_is_masked_beside_it() -> None:
    assert bmc_password.field_of(REDFISH) == "redfish_password"
    assert bmc_password.field_of(IPMI) == "ipmi_password"
    assert bmc_password.field_of({"address": ""}) is None
    assert bmc_password.field_of({"a_password": "", "b_password": ""}) is None
    pending = bmc_password.pending_field("redfish_password")
    assert is_secret(pending)
    assert bmc_password.pending_fields({"redfish_password": "x", pending: "y"}) == [pending]


@each("length", [8, 16, 20])
def test_generated_passwords_are_what_bmcs_accept(length: int) -> None:
    found = {passwords.generate(length) for _ in range(200)}
    assert len(found) == 200
    for password in found:
        assert len(password) == length
        assert passwords.problem(password) is None
        assert all(any(test(sign) for sign in password) for test in (str.islower, str.isupper, str.isdigit))
        assert set(password) & set("-_.")
        assert password[0].isalpha()
        assert not any(first == second for first, second in itertools.pairwise(password))


@each("wrong", ["short", "x" * 129, "with a space", "line\nbreak", "pässword-1", "tab\tinside", "********"])
def test_texts_that_are_no_passwords_are_refused(wrong: str) -> None:
    assert passwords.problem(wrong)
    assert wrong not in str(passwords.problem(wrong))


@each(
    ("other", "same"),
    [
        ({"redfish_system_id": "/redfish/v1/Systems/2"}, True),
        ({"redfish_address": "https://192.0.2.1:443"}, True),
        ({"redfish_address": "https://[2001:db8::1]"}, True),
        ({"redfish_address": "https://bmc:8443"}, False),
        ({"redfish_username": "other"}, False),
    ],
)
def test_nodes_of_one_bmc_have_the_same_account(other: dict[str, str], same: bool) -> None:
    """That their addresses lead to one BMC is known from elsewhere."""
    assert bmc_password.same_account(node(), node(**other), "redfish_password") is same
