"""MAC addresses that identify no machine."""

from __future__ import annotations

import pytest

from ferroscope_client.core.mac_addresses import KNOWN, IgnoredMacs
from tests.support.rows import each

USB = "be:3a:f2:b6:05:9f"


def test_known_addresses_are_ignored_unless_the_list_says_otherwise() -> None:
    """https://github.com/metal3-io/metal3-docs/pull/595, https://github.com/bb-Ricardo/netbox-sync/issues/280."""
    known = IgnoredMacs((KNOWN,))
    for mac in (USB, "0a:ca:fe:f0:0d:04", "fa:4b:7f:fc:bc:02", "00:1a:ca:ff:ff:01"):
        assert mac in known
        assert known.identifying(mac.upper().replace(":", "-")) is None
        assert mac not in IgnoredMacs(())
    for mac in ("be:3a:f2:b6:05:9e", "0a:ca:fe:f0:0e:04", "52:54:00:00:00:01"):
        assert mac not in known
        assert known.identifying(mac) == mac


@each(
    ("pattern", "matches", "not_matches"),
    [
        ("02:00:5e", "02:00:5e:12:34:56", "02:00:5f:12:34:56"),
        ("02-00-5E-00-00-0?", "02:00:5e:00:00:0a", "02:00:5e:00:00:1a"),
        ("?2", "f2:00:00:00:00:00", "f6:00:00:00:00:00"),
        ("??:??:??:00:00:01", "52:54:00:00:00:01", "52:54:00:00:00:02"),
    ],
)
def test_a_pattern_is_an_address_or_its_beginning(pattern: str, matches: str, not_matches: str) -> None:
    found = IgnoredMacs((KNOWN, pattern))
    assert matches in found
    assert not_matches not in found
    assert USB in found


@each("pattern", ["", "02:", "02:0", "02:00:5e:00:00:01:02", "eth0", "*", "??", "??:??", "02.00.5e"])
def test_a_pattern_that_is_wrong_or_matches_all_machines_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="MAC address"):
        IgnoredMacs((pattern,))


@each("mac", [None, 7, "", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "no-mac"])
def test_what_is_no_address_identifies_nothing(mac: object) -> None:
    assert IgnoredMacs(()).identifying(mac) is None
