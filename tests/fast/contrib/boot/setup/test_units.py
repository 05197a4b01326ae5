"""The units of a boot host: where they come from, and which are restarted."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contrib.boot import host_facts
from ferroscope.contrib.boot.setup import apply, plan
from ferroscope.contrib.boot.setup.installation import Questions, ask_boot_host
from ferroscope_client.errors import Failure


def test_units_that_are_nowhere_are_missed_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host_facts, "SYSTEMD", tmp_path)
    monkeypatch.setattr(plan, "UNITS", ("of-no-package.service",))
    run = mock.Mock()
    monkeypatch.setattr(apply, "run", run)
    with pytest.raises(Failure) as failed:
        ask_boot_host(mock.Mock(spec=Questions), "eth1", None, install=True, dry_run=False)
    assert "ferroscope-boot-host" in failed.value.advice
    run.assert_not_called()


@pytest.mark.parametrize("running", ["ferroscope-all.service", "ferroscope-api.service", "ferroscope-failover.service"])
def test_what_runs_here_is_restarted_with_the_new_configuration(running: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_facts, "is_active", lambda unit: unit == running)
    settings = Settings(database=DatabaseSettings(connection="postgresql://ferroscope@db/ferroscope"))

    def restarted(*, configured: bool) -> list[str]:
        return [one.unit for one in apply.services([], settings, configured=configured) if one.changed]

    assert restarted(configured=True) == [running, "ferroscope-pxe-filter.service"]
    assert restarted(configured=False) == []
