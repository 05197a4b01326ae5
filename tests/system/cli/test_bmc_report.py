"""``ferroscope bmc report``: from the node in the database to a file that a test can serve as a BMC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.cli.service import settings_of
from ferroscope.config.options import DriverSettings, Settings
from ferroscope.core import bmc_access
from ferroscope.db import Transaction
from ferroscope.runtime.backend import open_for_command
from ferroscope.runtime.externals import build_drivers
from ferroscope_client.errors import Exit
from tests.api.service import Service as Api
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.hardware import HOSTNAME, MACS, SERIAL
from tests.support.vendors.hpe import ILO6
from tests.support.vendors.recorded import recorded_node, replaying
from tests.support.vendors.service import Service, serving
from tests.system.bmc.conftest import LAX
from tests.system.cli.console import Shell

Switch = Any


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(ILO6) as running:
        yield running


@pytest.fixture
def shell(sqlite_url: str, listener: tuple[Switch, str]) -> Iterator[Shell]:
    """Give the command line before an api with the drivers of real BMCs."""
    drivers = DriverSettings(enabled=("redfish", "ipmi"), allow_http_passwords=True, bmc_networks=("127.0.0.0/8",))
    settings = Settings(drivers=drivers)
    served = Api(sqlite_url, drivers=build_drivers(settings))
    listener[0].app = served.app
    yield Shell(listener[1])
    listener[0].app = None
    served.close()


@pytest.fixture
def configured(tmp_path: Path, sqlite_url: str) -> list[str]:
    """Return the options for this host's configuration, which has the password and the database."""
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "bmc").write_text(PASSWORD)
    (secrets / "bmc").chmod(0o600)
    file = tmp_path / "report.conf"
    file.write_text(
        f"[database]\nconnection = {sqlite_url}\n[secrets]\nsources = file\nfile_directory = {secrets}\n"
        "[drivers]\nallow_http_passwords = true\nbmc_networks = 127.0.0.0/8\n"
    )
    return ["-c", str(file)]


def enroll(shell: Shell, service: Service, password: str) -> None:
    info = {"redfish_address": service.url, "redfish_username": USER, "redfish_password": password}
    fields = [word for key, value in info.items() for word in ("-d", f"{key}={value}")]
    shell("node", "create", "rack7-u12", "--driver", "redfish", *fields, check=0)


@pytest.mark.parametrize("password", ["secret://file/bmc", "plain"])
def test_a_report_is_written_and_a_test_can_serve_it(
    shell: Shell, service: Service, configured: list[str], tmp_path: Path, password: str
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    enroll(shell, service, f"@{tmp_path}/password" if password == "plain" else password)
    file = tmp_path / "report.json"
    done = shell("bmc", "report", "rack7-u12", "--output", str(file), *configured, check=0)
    assert str(file) in done.stderr
    assert "not complete" not in done.stderr
    text = file.read_text()
    for word in (PASSWORD, USER, SERIAL, HOSTNAME, *MACS, *(mac.upper() for mac in MACS), "rack7-u12"):
        assert word not in text
    assert service.logins.sessions == {}
    with replaying(json.loads(text)) as recording, closing(RedfishBmc(DriverOptions(limits=LAX))) as driver:
        inventory = driver.inventory(recorded_node(recording))
    assert inventory["system_vendor"]["product_name"] == ILO6.model
    assert len(inventory["interfaces"]) == len(MACS)


def test_with_identities_they_are_in_it_and_the_password_is_not(
    shell: Shell, service: Service, configured: list[str]
) -> None:
    enroll(shell, service, "secret://file/bmc")
    written = shell("bmc", "report", "rack7-u12", "--output", "-", "--identities", *configured, check=0).stdout
    assert SERIAL in written
    assert PASSWORD not in written
    assert json.loads(written)["identities"]


def test_a_file_that_exists_is_not_replaced(
    shell: Shell, service: Service, configured: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_text("mine")
    shell("bmc", "report", "rack7-u12", "--output", str(file), *configured, check=Exit.FAILURE)
    assert file.read_text() == "mine"
    assert service.asked == []


def test_what_cannot_be_reported_is_said_and_no_file_is_written(
    shell: Shell, service: Service, configured: list[str], tmp_path: Path
) -> None:
    words = ("--output", str(tmp_path / "report.json"), *configured)
    shell("bmc", "report", "nobody", *words, check=Exit.NOT_FOUND)
    shell("node", "create", "other", "--driver", "ipmi", "-d", "ipmi_address=192.0.2.7", check=0)
    shell("bmc", "report", "other", *words, check=Exit.FAILURE)
    enroll(shell, service, "secret://file/no-such-file")
    shell("bmc", "report", "rack7-u12", *words, check=Exit.FAILURE)
    assert not (tmp_path / "report.json").exists()
    assert service.asked == []


def test_a_bmc_whose_address_the_machine_itself_has_reported_gets_no_password(
    shell: Shell, service: Service, configured: list[str], tmp_path: Path
) -> None:
    enroll(shell, service, "secret://file/bmc")
    file = Path(configured[1])
    file.write_text(file.read_text().replace("bmc_networks = 127.0.0.0/8\n", ""))  # with it, the machine is believed

    def reported(tx: Transaction) -> None:
        node = tx.nodes.get("rack7-u12", lock=True)
        bmc_access.confirm(node, by_operator=False)
        tx.nodes.update(node)

    with open_for_command(settings_of((configured[1],), None)) as backend:
        backend.store.write(reported)
    done = shell("bmc", "report", "rack7-u12", "--output", str(tmp_path / "x.json"), *configured, check=Exit.FAILURE)
    assert "reported by the machine itself" in done.stderr
    assert service.asked == []


def test_a_file_that_cannot_be_written_is_said(
    shell: Shell, service: Service, configured: list[str], tmp_path: Path
) -> None:
    enroll(shell, service, "secret://file/bmc")
    file = tmp_path / "missing" / "x.json"
    done = shell("bmc", "report", "rack7-u12", "--output", str(file), *configured, check=Exit.FAILURE)
    assert f"cannot write {file}" in done.stderr
