"""What goes to a kernel or to dnsmasq keeps its commas; a list with commas is refused, with how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.options import BootSettings


def _boot(place: Path, text: str) -> BootSettings:
    path = place / "ferroscope.conf"
    path.write_text(f"[boot]\n{text}\n")
    return load([str(path)]).boot


def test_kernel_options_are_words_that_keep_their_commas(tmp_path: Path) -> None:
    settings = _boot(tmp_path, "kernel_options = console=tty0 console=ttyS0,115200n8\n  pci=nommconf,hpbussize=0x33")
    assert settings.kernel_options == ("console=tty0", "console=ttyS0,115200n8", "pci=nommconf,hpbussize=0x33")
    assert _boot(tmp_path, "kernel_options = quiet").kernel_options == ("quiet",)
    assert _boot(tmp_path, "").kernel_options == ()


@pytest.mark.parametrize(
    "value", ["quiet,panic=1", "console=tty0,console=ttyS0,115200n8", "console=ttyS0, quiet", "console=ttyS0,"]
)
def test_kernel_options_that_are_a_list_with_commas_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match="kernel_options"):
        _boot(tmp_path, f"kernel_options = {value}")


@pytest.mark.parametrize(
    "text",
    [
        "dnsmasq_options = log-dhcp\ndnsmasq_options = dhcp-option=option:ntp-server,10.0.0.1",
        "dnsmasq_options =\n    log-dhcp\n    dhcp-option=option:ntp-server,10.0.0.1",
    ],
)
def test_lines_for_dnsmasq_keep_their_commas(tmp_path: Path, text: str) -> None:
    options = _boot(tmp_path, text).dnsmasq_options
    assert "\n".join(options) == "log-dhcp\ndhcp-option=option:ntp-server,10.0.0.1"


def test_lines_for_dnsmasq_that_are_a_list_with_commas_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"dnsmasq_options.*'log-dhcp,quiet-tftp'"):
        _boot(tmp_path, "dnsmasq_options = log-dhcp,quiet-tftp")


def test_an_environment_variable_cannot_hold_lines_for_dnsmasq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_BOOT__DNSMASQ_OPTIONS", "log-dhcp")
    with pytest.raises(ConfigurationError, match=r"\[boot\] dnsmasq_options.*environment"):
        _boot(tmp_path, "")


def test_addresses_may_be_written_below_each_other(tmp_path: Path) -> None:
    settings = _boot(tmp_path, "addresses =\n    boot1 10.0.0.11 fd00::11,\n    boot2 10.0.0.12 fd00::12")
    assert settings.addresses == ("boot1 10.0.0.11 fd00::11", "boot2 10.0.0.12 fd00::12")
