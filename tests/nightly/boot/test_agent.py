"""Servers boot the real agent in our ramdisk, and what is told where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from tests.nightly.boot.test_firmware import WAYS
from tests.support.boot.checks import check_end
from tests.support.boot.site import BootSite, plan

pytestmark = pytest.mark.timeout(7200)


@pytest.mark.parametrize(("way", "memory"), [("bios-pxe", 512), ("uefi-http", 1024)])
def test_a_machine_is_inspected_by_the_real_agent(
    tmp_path: Path, postgresql_url: str, ramdisk: Path, way: str, memory: int
) -> None:
    firmware, knobs, said = WAYS[way]
    with BootSite(tmp_path, postgresql_url, ramdisk, plan()) as site:
        machine = site.add("vm1", firmware=firmware, knobs=knobs, memory=memory)
        site.inspect(machine)
        state = site.until_done(machine)
        assert state == "manageable", site.told(machine)
        assert said in machine.console.text
        assert "Found LLDP info for interface" in machine.console.text
        check_end(site, machine)


def test_an_agent_with_a_wrong_secret_is_refused_and_the_node_says_so(
    tmp_path: Path, postgresql_url: str, ramdisk: Path
) -> None:
    with BootSite(tmp_path, postgresql_url, ramdisk, plan()) as site:
        machine = site.add("vm1", firmware="bios")
        site.inspect(machine)
        site.until_step(machine, "boot-script")
        with create_engine(postgresql_url, poolclass=NullPool).begin() as connection:
            connection.exec_driver_sql(f"UPDATE inspections SET secret = '{'0' * 64}'")
        refused = site.until_step(machine, "callback-refused")
        assert refused["reason"] == "callback-unproven"
        assert site.state(machine.name) == "inspect wait"
        site.let_time_pass(machine)
        assert site.until_done(machine) == "inspect failed"
        assert site.steps(machine)["failed"]["reason"] == "callback-refused"
        assert "wrong secret" in site.node(machine.name)["last_error"]
        assert not site.hypervisor.is_on(machine.name)
