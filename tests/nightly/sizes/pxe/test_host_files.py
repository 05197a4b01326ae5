"""What the tests of the filter of host files do with 40,000 machines, with 100,000."""

from __future__ import annotations

from pathlib import Path

from tests.support.pxe.host import BootHost
from tests.support.pxe.prober import Prober
from tests.system.pxe.conftest import lab
from tests.system.pxe.test_host_files import host, hostsdir, load, prober

__all__ = ["host", "hostsdir", "lab", "prober"]


def test_a_hundred_thousand_macs_are_loaded_and_a_change_does_not_wait_for_them(
    host: BootHost, hostsdir: Path, prober: Prober
) -> None:
    load(host, hostsdir, prober, 100_000)
