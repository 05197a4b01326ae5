"""Syncs that are disturbed, interrupted or not allowed: what they say, and what the next run mends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service, callback_body
from tests.support import examples
from tests.support.dcim import ROLE, Synced
from tests.support.faulty_proxy import FaultyProxy
from tests.support.processes import PATIENCE
from tests.system.cli.console import Shell

pytestmark = pytest.mark.timeout(3600)  # the schema, once


def inspect(service: Service, name: str) -> None:
    """Enrol and inspect a machine with two NICs and a disk."""
    uuid = service.enrol(name=name)
    disk = {"name": "/dev/sda", "model": "PM1733", "serial": f"S-{name}", "vendor": "Samsung", "size": 10**12}
    body = callback_body(service.wait(uuid), examples.mac(), disks=[disk])
    body["inventory"]["system_vendor"] = {
        "manufacturer": "Dell Inc.", "product_name": "PowerEdge R650", "serial_number": f"SN-{name}",
    }  # fmt: skip
    answer = service.bare_metal.post("/v1/continue_inspection", body, version="1.1")
    assert answer.status_code == 202, answer.text
    service.finish(uuid)


def command(dcim: Synced, *options: str, url: str = "") -> tuple[str, ...]:
    name, place = dcim.real.name, f"--{dcim.real.dialect.place}"
    where = (f"--{name}-url", url or dcim.real.url, place, dcim.place, "--role", ROLE)
    return ("sync", name, *where, *options)


@pytest.fixture(autouse=True)
def has_token(dcim: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{dcim.real.name.upper()}_TOKEN", dcim.real.token)


def test_the_command_syncs_the_machines_of_the_service(service: Service, shell: Shell, dcim: Synced) -> None:
    inspect(service, "a1")
    service.enrol(name="never-inspected")
    planned = shell.json(*command(dcim, "--dry-run"))
    assert not dcim.devices()
    done = shell.json(*command(dcim))
    assert [one["name"] for one in done["changes"]] == [one["name"] for one in planned["changes"]]
    assert (planned["left_out"], done["left"]) == (1, [])
    assert set(dcim.devices()) == {"a1"}
    assert any(line.startswith("0 changes") for line in shell(*command(dcim)).output.splitlines())


def test_a_sync_that_was_killed_is_completed_by_the_next(service: Service, shell: Shell, dcim: Synced) -> None:
    names = [f"k{number:02}" for number in range(60)]  # more than one batch
    for name in names:
        inspect(service, name)
    proxy = FaultyProxy(dcim.real.url)
    variables = os.environ | {"FERROSCOPE_URL": shell.url}
    for path in ("dcim/devices", "dcim/interfaces", "dcim/inventory-items"):
        _killed_at(proxy, path, [sys.executable, "-m", "ferroscope", *command(dcim, url=proxy.url)], variables)
    proxy.close()
    report = shell.json(*command(dcim))
    assert report["left"] == []
    assert set(dcim.devices()) == set(names)
    for name in (names[0], names[-1]):
        assert all(len(macs) == 1 for macs in dcim.macs(name).values())
        assert set(dcim.parts("inventory-items", name)) == {"/dev/sda"}
    assert shell.json(*command(dcim))["changes"] == []


def _killed_at(proxy: FaultyProxy, path: str, words: list[str], variables: dict[str, str]) -> None:
    """Run a sync, and kill it when objects of this list have been created, before it hears of that."""
    created = threading.Event()

    def hold(handler: Any) -> None:
        handler.forwarded()
        created.set()
        proxy.closing.wait(PATIENCE)

    proxy.will(hold, method="POST", path=path)
    process = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL)
    assert created.wait(PATIENCE)
    process.kill()
    process.wait()


def _refused(shell: Shell, dcim: Synced, *options: str, **more: Any) -> str:
    output = shell(*command(dcim, *options, **more), check=Exit.FAILURE).output
    assert not any(token in output for token in (dcim.real.token, dcim.real.powerless_token, "wrong-token"))
    return output


def test_a_wrong_token_missing_rights_and_a_wrong_place_are_reported_and_write_nothing(
    service: Service, shell: Shell, dcim: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect(service, "a1")
    assert "--role" not in _refused(shell, dcim, "--role", "no-such-role")
    assert "HTTP 404" in _refused(shell, dcim, url=f"{dcim.real.url}/nothing-here")
    variable = f"{dcim.real.name.upper()}_TOKEN"
    for token in (dcim.real.powerless_token, "0123456789-wrong-token"):
        monkeypatch.setenv(variable, token)
        assert "HTTP 40" in _refused(shell, dcim)
    shell(*command(dcim, f"--{dcim.real.name}-token", dcim.real.token), check=Exit.USAGE)
    monkeypatch.setenv(variable, dcim.real.token)
    assert not dcim.devices()
