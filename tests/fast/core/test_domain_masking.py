"""What is taken for a secret, by its name."""

from __future__ import annotations

from ferroscope_client.core import values
from ferroscope_client.core.values import is_secret, mask
from tests.support.rows import each

SECRET = """redfish_password ipmi_password snmp_auth_key ipmi_hex_kg_key snmp_community bmc_passphrase api_key apiKey
    access_key admin_pass adminPass pass bmc_pwd pwd sys_pswd ssh_key ssh_private_key private-key encryption_key
    CHAPPASSWORD configdrive secret_uuid auth_token keystone_credential"""
OPEN = """redfish_address ipmi_username vendor_passthru bypass compass passive_mode ssh_public_key boot_key keyboard
    deploy_kernel ipmi_bridging capabilities redfish_auth_type monkey"""


@each("name", SECRET.split())
def test_what_has_a_telling_name_is_a_secret(name: str) -> None:
    assert is_secret(name)


@each("name", OPEN.split())
def test_what_has_another_name_is_none(name: str) -> None:
    assert not is_secret(name)


def test_a_url_without_a_secret_is_shown_as_it_is() -> None:
    document = {"image": "http://host/x.iso?a=1&b=c#d", "list": ["ftp://host/@x"], "text": "a=1&token=2"}
    assert mask(document) == document


def test_items_of_a_list_keep_their_secrets_in_another_order() -> None:
    count = 100
    stored = [{"number": number, "password": str(number)} for number in range(count)]
    moved = [{"number": number, "password": values.MASK} for number in reversed(range(count))]
    assert values.unmask({"x": moved}, {"x": stored}) == {"x": stored[::-1]}
    plain = {"x": list(range(count))}
    assert values.unmask(plain, {"x": stored}) == plain
