"""The ramdisk's kernel parameters: one line, the operator's words first, nothing said twice."""

from __future__ import annotations

import pytest

from ferroscope.core.boot import CONSOLES, callback_url, kernel_params, with_consoles
from tests.support.rows import each

CALLBACK = "http://192.0.2.1:6385/v1/continue_inspection"


def test_the_ramdisk_is_told_where_to_post_and_to_collect_lldp() -> None:
    assert kernel_params(CALLBACK) == f"ipa-inspection-callback-url={CALLBACK} ipa-collect-lldp=1"


def test_the_operators_words_come_first_and_win() -> None:
    line = kernel_params(CALLBACK, extra="  console=ttyS0   ipa-collect-lldp=0 ")
    assert line == f"console=ttyS0 ipa-collect-lldp=0 ipa-inspection-callback-url={CALLBACK}"


def test_virtual_media_says_how_it_was_booted() -> None:
    assert kernel_params(CALLBACK, collect_lldp=False, boot_method="vmedia").endswith(" boot_method=vmedia")


def test_the_consoles_are_added_unless_the_operator_names_some() -> None:
    assert with_consoles("", CONSOLES["amd64"]) == "console=tty0 console=ttyS0,115200n8"
    assert with_consoles(" quiet", "${consoles}") == "${consoles} quiet"
    assert with_consoles("quiet console=ttyS1 ", CONSOLES["amd64"]) == "quiet console=ttyS1"
    assert with_consoles("", CONSOLES["arm64"]) == ""


@each("base", ["http://192.0.2.1:6385", "http://192.0.2.1:6385/"])
def test_the_callback_goes_to_the_bare_metal_api(base: str) -> None:
    assert callback_url(base) == CALLBACK


def test_a_base_url_may_have_a_path_and_an_ipv6_address() -> None:
    assert callback_url("https://[2001:db8::1]/baremetal") == "https://[2001:db8::1]/baremetal/v1/continue_inspection"


@each("base", ["", "192.0.2.1:6385", "ftp://192.0.2.1", "http://", "http://[::1", "http://a b"])
def test_what_no_ramdisk_could_post_to_is_refused(base: str) -> None:
    with pytest.raises(ValueError, match="invalid URL"):
        callback_url(base)
