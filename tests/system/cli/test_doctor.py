"""``ferroscope doctor`` on what is right and on what is wrong: each thing in a sentence, and the exit code."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import bcrypt
import msgspec
import pytest
from click.testing import CliRunner

from ferroscope.config.load import load
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import new_key
from ferroscope.telemetry import members
from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support import databases, examples
from tests.support.processes import free_port
from tests.support.servers import Server
from tests.system.cli.console import Shell


class Doctor:
    """Runs the command on a configuration of the test's own."""

    def __init__(self, directory: Path, url: str) -> None:
        self._file = directory / "doctor.conf"
        self.settings: dict[str, dict[str, Any]] = {
            "api": {"host": "127.0.0.1", "bare_metal_port": free_port(), "introspection_port": 0},
            "database": {"connection": url, "busy_timeout": 1, "connect_timeout": 1},
        }

    @property
    def file(self) -> str:
        sections = (
            f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())
            for section, options in self.settings.items()
        )
        self._file.write_text("".join(sections))
        self._file.chmod(0o600)
        return str(self._file)

    def __call__(self, *options: str, check: int) -> dict[str, dict[str, str]]:
        """Return the last check of each name; ``check`` is the exit code that is expected."""
        result = CliRunner().invoke(main, ["doctor", "-c", self.file, "-o", "json", *options])
        assert result.exit_code == check, result.output
        assert "Traceback" not in result.output
        return {row["code"]: row for row in json.loads(result.stdout)["checks"]}


@pytest.fixture
def doctor(tmp_path: Path, sqlite_url: str) -> Doctor:
    """Return the doctor for a new database."""
    return Doctor(tmp_path, sqlite_url)


def test_an_option_that_does_not_exist_is_wrong_unless_it_may_be_of_a_newer_release(doctor: Doctor) -> None:
    doctor.settings["api"]["hots"] = "x"
    refused = doctor(check=Exit.FAILURE)["configuration"]
    found = doctor("--lenient-config", check=Exit.OK)["unknown-option"]
    assert (refused["verdict"], found["verdict"]) == ("wrong", "note")
    assert "hots in [api]" in refused["summary"]
    assert "hots in [api]" in found["summary"]
    assert "host" in found["advice"].replace("?", " ").split()


def test_an_installation_that_is_right_has_nothing_wrong(tmp_path: Path, database_url: str) -> None:
    doctor = Doctor(tmp_path, database_url)
    found = doctor(check=Exit.OK)
    backend = open_backend(load([doctor.file]), clock=SystemClock(), stop=threading.Event(), listen=False)
    assert backend.store.read(lambda tx: tx.leases.list()) == [], "it leaves nothing behind"
    backend.close()
    assert set(found) >= {"configuration", "drivers", "hooks", "port", "database", "schema", "clock", "writing"}
    assert {row["verdict"] for row in found.values()} == {"ok", "note"}
    assert found["no-worker"]["verdict"] == "note"


def test_a_running_service_is_found_healthy(running: Shell, tmp_path: Path) -> None:
    doctor = Doctor(tmp_path, "sqlite://")
    doctor.settings["api"]["bare_metal_port"] = int(running.url.rpartition(":")[2])
    del doctor.settings["database"]
    doctor.settings["database"] = {"connection": f"sqlite:///{tmp_path / 'other.db'}"}
    found = doctor(check=Exit.FAILURE)
    assert found["port-served"]["verdict"] == "ok"
    assert (found["database"]["verdict"], str(tmp_path / "other.db") in found["database"]["summary"]) == ("wrong", True)
    assert not (tmp_path / "other.db").exists()


def test_a_database_that_does_not_answer_is_said_without_its_password(doctor: Doctor) -> None:
    url = f"postgresql://me:hunter2@127.0.0.1:{free_port()}/inspection"
    doctor.settings["database"]["connection"] = url
    found = doctor(check=Exit.FAILURE)
    assert found["database"]["verdict"] == "wrong"
    assert "inspection at 127.0.0.1" in found["database"]["summary"]
    shown = CliRunner().invoke(main, ["doctor", "-c", doctor.file]).output
    assert "hunter2" not in shown
    assert "1 of " in shown


@pytest.mark.parametrize("password", ["hunter2@Secret99", "hunter2@Secret99/Secret99"])
def test_a_password_with_an_at_sign_that_was_not_encoded_is_said_without_it(doctor: Doctor, password: str) -> None:
    url = f"postgresql://me:{password}@127.0.0.1:{free_port()}/inspection"
    doctor.settings["database"]["connection"] = url
    found = doctor(check=Exit.FAILURE)
    assert "%40" in found["database"]["advice"]
    assert "Secret99" not in msgspec.json.encode(found).decode()


def test_a_file_that_others_may_read_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "made.db"
    doctor = Doctor(tmp_path, f"sqlite:///{file}")
    ensure_schema(load([doctor.file]), upgrade=True)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("made.db*")} == {0o600}
    assert "database-file" not in doctor(check=Exit.OK)
    file.chmod(0o640)
    found = doctor(check=Exit.OK)["database-file"]
    assert found["verdict"] == "note"
    assert "chmod" in found["advice"]


def test_a_server_that_acknowledges_what_it_has_not_stored_is_noted(
    tmp_path: Path, request: pytest.FixtureRequest, server_kind: str
) -> None:
    """The tests' own server does not wait for the disk."""
    found = Doctor(tmp_path, request.getfixturevalue(f"{server_kind}_url"))(check=Exit.OK)["durability"]
    assert found["verdict"] == "note"
    assert "loses the last acknowledged changes" in found["summary"]
    with databases.fresh(request.getfixturevalue(f"{server_kind}_server")) as url:
        assert "durability" not in Doctor(tmp_path, url)(check=Exit.OK)


def test_an_empty_database_needs_its_schema(tmp_path: Path, shared_postgresql: Server) -> None:
    with databases.fresh(shared_postgresql, migrated=False) as url:
        found = Doctor(tmp_path, url)(check=Exit.FAILURE)
    assert found["schema"]["verdict"] == "wrong"
    assert "ferroscope db upgrade" in found["schema"]["advice"]


@pytest.mark.parametrize(
    ("section", "option", "value", "check"),
    [
        ("drivers", "enabled", "fake,telepathy", "drivers"),
        ("inspector", "hooks", "$default_hooks,no-such-hook", "hooks"),
        ("worker", "interrupted", "never", "configuration"),
        ("inspection_rules", "built_in_rules", "/nowhere/rules.yaml", "rules"),
    ],
)
def test_a_setting_that_cannot_work_is_named(doctor: Doctor, section: str, option: str, value: str, check: str) -> None:
    doctor.settings[section] = {option: value}
    found = doctor(check=Exit.FAILURE)[check]
    assert found["verdict"] == "wrong"
    assert value.rpartition(",")[2] in found["summary"]


def test_a_port_that_somebody_else_has_is_wrong(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen(1)
        doctor.settings["api"]["bare_metal_port"] = other.getsockname()[1]
        found = doctor(check=Exit.FAILURE)
    assert found["port-taken"]["verdict"] == "wrong"


def test_a_port_that_an_api_has_on_another_address_is_not_free(running: Shell, doctor: Doctor) -> None:
    doctor.settings["api"] = {
        "host": "::", "bare_metal_port": int(running.url.rpartition(":")[2]), "introspection_port": 0,
        "allow_anonymous": True,
    }  # fmt: skip
    found = doctor(check=Exit.OK)
    assert "port" not in found
    assert found["port-served"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("mode", "of_service", "verdict"),
    [(0o644, True, "wrong"), (0o640, False, "note"), (0o640, True, None), (0o600, False, None)],
)
def test_a_configuration_file_with_a_password_that_others_may_read(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, mode: int, of_service: bool, verdict: str
) -> None:
    group = Path(doctor.file).stat().st_gid
    monkeypatch.setattr("ferroscope.doctor.host.service_group", lambda: group if of_service else group + 1)
    doctor.settings["swift"] = {"password": "hunter2"}
    file = Path(doctor.file)
    file.chmod(mode)
    result = CliRunner().invoke(main, ["doctor", "-c", str(file), "-o", "json"])
    found = {row["code"]: row["verdict"] for row in json.loads(result.stdout)["checks"]}
    assert found.get("configuration-file") == verdict
    assert "hunter2" not in result.output


def test_a_driver_that_lacks_its_package_or_its_program_is_named(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_spec, found_program = importlib.util.find_spec, shutil.which
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sushy" else found_spec(name))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ipmitool" else found_program(name))
    result = CliRunner().invoke(main, ["doctor", "-c", doctor.file, "-o", "json"])
    assert result.exit_code == Exit.FAILURE
    rows = json.loads(result.stdout)["checks"]
    found = [(row["verdict"], row["summary"].split()[2]) for row in rows if row["code"] == "driver-incomplete"]
    assert found == [("wrong", "redfish"), ("note", "ipmi")]
    assert "drivers" not in {row["code"] for row in rows}


@pytest.mark.parametrize(("told", "found"), [({}, True), ({"require_managed_boot": "false"}, False)])
def test_an_unmanaged_boot_by_silence_is_noted(doctor: Doctor, told: dict[str, str], found: bool) -> None:
    doctor.settings["inspector"] = told
    result = CliRunner().invoke(main, ["doctor", "-c", doctor.file, "-o", "json"])
    assert ("unmanaged-boot" in {row["code"] for row in json.loads(result.stdout)["checks"]}) is found


@pytest.mark.parametrize(
    ("url", "trusted", "found"),
    [
        ("", "", False),
        ("https://bmaas.example.com", "", True),
        ("https://bmaas.example.com", "10.0.0.0/24", False),
        ("http://bmaas.example.com", "", True),
        ("http://bmaas.example.com:{port}", "", False),
        ("http://192.0.2.77:{port}", "", True),
        ("http://127.0.0.1:{port}", "", False),
        ("http://[::1", "", False),
    ],
)
def test_a_proxy_that_is_not_trusted_is_noted(doctor: Doctor, url: str, trusted: str, found: bool) -> None:
    port = free_port()
    doctor.settings["api"] |= {
        "public_url": url.format(port=port), "trusted_proxies": trusted, "bare_metal_port": port,
    }  # fmt: skip
    findings = doctor(check=Exit.OK)
    assert ("proxy-not-trusted" in findings) is found
    if found:
        assert findings["proxy-not-trusted"]["verdict"] == "note"


def test_members_with_other_settings_or_a_wrong_clock_and_dead_ones_are_wrong(doctor: Doctor, sqlite_url: str) -> None:
    report = members.about(load([doctor.file]), ["worker"], "0003", skew=0.0, loops={})
    service = Service(sqlite_url)

    def beat(ident: str, ttl: float = 60.0, **detail: Any) -> None:
        member = msgspec.structs.replace(examples.member(ident, detail=report | detail), host=ident)
        service.store.write(lambda tx: tx.members.beat(member, ttl))

    try:
        beat("good")
        found = doctor(check=Exit.OK)
        assert {found["drift"]["verdict"], found["members"]["verdict"]} == {"ok"}
        assert found["leases"]["verdict"] == "note", "nobody leads"
        service.store.write(lambda tx: tx.leases.acquire("periodic/timeouts", "good", 60.0))
        assert doctor(check=Exit.OK)["leases"]["verdict"] == "ok"
        beat("dead", ttl=0.0)
        found = doctor(check=Exit.FAILURE)["member-dead"]
        assert found["summary"].startswith("worker@dead:42 ")
        beat("odd", settings=report["settings"] | {"lease": "0"})
        assert "[lease]" in doctor(check=Exit.FAILURE)["settings-differ"]["summary"]
        beat("odd", clock_skew=-30.0)
        found = doctor(check=Exit.FAILURE)["clock-skew"]
        assert "odd is 30.0 s" in found["summary"]
    finally:
        service.close()


def test_secrets_in_plain_text_and_a_missing_key_are_reported(doctor: Doctor, sqlite_url: str, tmp_path: Path) -> None:
    service = Service(sqlite_url)
    service.enrol(driver_info={"bmc_password": "Canary-31"})
    service.close()
    assert doctor(check=0)["secrets-plain"]["verdict"] == "note"
    file = tmp_path / "keys"
    doctor.settings["secrets"] = {"key_file": file}
    for change, expected in (("", "secrets-plain"), ("rekey", "secrets"), ("lose", "encryption-key-missing")):
        if change != "rekey":
            file.write_text(f"{new_key()}\n")
            file.chmod(0o600)
        else:
            assert CliRunner().invoke(main, ["db", "rekey", "-c", doctor.file]).exit_code == 0
        assert expected in doctor(check=Exit.FAILURE if change == "lose" else 0)


def test_authentication_is_checked(doctor: Doctor, tmp_path: Path) -> None:
    assert doctor(check=Exit.OK)["authentication"]["verdict"] == "ok"
    doctor.settings["api"] |= {"host": "::"}
    assert doctor(check=Exit.FAILURE)["authentication"]["verdict"] == "wrong"
    doctor.settings["api"] |= {"allow_anonymous": True}
    assert doctor(check=Exit.OK)["authentication"]["verdict"] == "note"
    users = tmp_path / "htpasswd"
    doctor.settings["api"] |= {"auth_strategy": "http_basic", "http_basic_auth_user_file": users}
    assert doctor(check=Exit.FAILURE)["authentication"]["verdict"] == "wrong"
    users.write_text("alice:" + bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode())
    for mode, verdict in ((0o644, "wrong"), (0o620, "wrong"), (0o640, "note")):
        users.chmod(mode)
        found = doctor(check=Exit.FAILURE if verdict == "wrong" else Exit.OK)
        assert found["user-file"]["verdict"] == verdict
    users.chmod(0o600)
    log = tmp_path / "audit.log"
    doctor.settings["audit"] = {"log_file": log}
    for mode, is_mentioned in ((0o644, True), (0o640, False)):
        log.touch()
        log.chmod(mode)
        assert ("audit-file" in doctor(check=Exit.OK)) is is_mentioned
    assert {"user-file", "policies"}.isdisjoint(doctor(check=Exit.OK))
    policies = tmp_path / "policy.yaml"
    policies.write_text('"baremetal:node:delte": "!"\n')
    doctor.settings["oslo_policy"] = {"policy_file": policies}
    found = doctor(check=Exit.OK)["policies"]
    assert found["verdict"] == "note"
    assert "baremetal:node:delte (did you mean baremetal:node:delete?)" in found["summary"]
