"""``ferroscope pxe ruleset``: the file that closes a host is whole or untouched, and is not made in vain."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit


def _ruleset(directory: Path, options: str, *words: str) -> Result:
    config = directory / "ferroscope.conf"
    config.write_text(f"[pxe_filter]\n{options}\n")
    return CliRunner().invoke(main, ["pxe", "ruleset", "-c", str(config), *words])


def test_it_is_printed_or_written(tmp_path: Path) -> None:
    path = tmp_path / "closed.nft"
    printed = _ruleset(tmp_path, "interfaces = eth1").output
    assert printed.startswith("table inet ferroscope_pxe_default\n")
    assert _ruleset(tmp_path, "interfaces = eth1", "-o", str(path)).output == f"wrote {path}\n"
    assert path.read_text() == printed
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "ferroscope.conf"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("", "[pxe_filter] interfaces"),
        ("interfaces = eth1\nbackends = iptables,dnsmasq\ndhcp_hostsdir = /hosts", "without nftables"),
        ("interfaces = eth1,eth*", "'eth*'"),
        ("interfaces = eth1\nsync_period = soon", "[pxe_filter] sync_period"),
    ],
)
def test_a_mistake_leaves_the_file_as_it_was_and_makes_none(tmp_path: Path, options: str, why: str) -> None:
    for path in (tmp_path / "closed.nft", tmp_path / "new.nft"):
        if path.name == "closed.nft":
            path.write_text("as it was")
        result = _ruleset(tmp_path, options, "-o", str(path))
        assert result.exit_code == Exit.CONFIGURATION
        assert why in result.output
    assert (tmp_path / "closed.nft").read_text() == "as it was"
    assert not (tmp_path / "new.nft").exists()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    result = _ruleset(tmp_path, "interfaces = eth1", "-o", str(tmp_path / "nowhere" / "closed.nft"))
    assert result.exit_code == 1
    assert "cannot write" in result.output
