"""What it takes to extend Ferroscope, counted: each extension is a package of somebody else's, in the real service.

A hook is two files, a BMC driver one package, and neither changes a file of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import until
from tests.system.extending.outside import Site, from_guide, install, machine
from tests.system.extending.relay import Relay

MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    """Give a function that starts the service with what is installed in a place; it ends with the test."""
    with ExitStack() as stack:

        def make(place: Path, configuration: str = "") -> Site:
            site = Site(tmp_path, place, configuration)
            stack.callback(site.close)
            return site

        yield make


def test_a_hook_is_two_files(make_site: MakeSite, tmp_path: Path) -> None:
    files = from_guide("write-a-hook.md", "rack_hook.py")
    assert len(files) == 2
    place = install(files, tmp_path)
    configuration = "[drivers]\nenabled = fake-hardware\n[inspector]\nhooks = $default_hooks,rack\n"
    site = make_site(place, configuration)
    site.wait_ready()
    body = machine(81)
    uuid = site.enroll(body, driver="fake-hardware")
    site.inspect(uuid)
    site.reach(uuid, "inspect wait")
    site.call_back(body)
    assert site.reach(uuid, "manageable")["extra"] == {"rack": "r0002"}


def test_a_bmc_driver_is_a_package(make_site: MakeSite, tmp_path: Path) -> None:
    place = install(from_guide("write-a-bmc-driver.md", "relay_bmc.py"), tmp_path)
    site = make_site(place, "[drivers]\nenabled = relay\nbmc_networks = 127.0.0.0/8\n")
    site.wait_ready()
    assert re.search(r"ok +drivers .*relay", site.run("doctor"))
    (driver,) = site.call("GET", "/v1/drivers?detail=true")["drivers"]
    assert (driver["name"], driver["enabled_inspect_interfaces"]) == ("relay", ["agent", "no-inspect"])
    assert set(site.call("GET", "/v1/drivers/relay/properties")) == {"relay_address", "relay_port"}
    body = machine(81)
    with Relay(lambda: site.call_back(body)) as relay:
        uuid = site.enroll(
            body, driver="relay", driver_info={"relay_address": "127.0.0.1", "relay_port": relay.server_port}
        )
        site.inspect(uuid)
        assert until(lambda: relay.on)
        node = site.reach(uuid, "manageable")
        assert (node["last_error"], node["power_state"]) == (None, "power off")
        assert [command for command in relay.commands if command != "Power"] == ["Power On", "Power Off"]
        assert not relay.on


def test_a_source_of_secrets_is_a_package(make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = install(from_guide("write-a-secret-source.md", "lines_source.py"), tmp_path)
    (tmp_path / "lines").write_text("rack1=Canary-9c\n")
    monkeypatch.setenv("LINES_FILE", str(tmp_path / "lines"))
    site = make_site(place, "[drivers]\nenabled = fake-hardware\n[secrets]\nsources = lines\n")
    site.wait_ready()
    assert re.search(r"ok +secret-sources .*lines", site.run("doctor"))
    errors = {}
    for name in ("rack1", "rack2"):
        info = {"bmc_password": f"secret://lines/{name}"}
        uuid = site.call("POST", "/v1/nodes", {"driver": "fake-hardware", "driver_info": info})["uuid"]
        site.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
        assert until(lambda uuid=uuid: _rested(site.call("GET", f"/v1/nodes/{uuid}")))  # type: ignore[misc]
        node = site.call("GET", f"/v1/nodes/{uuid}")
        errors[name] = node["last_error"]
        assert node["driver_info"] == {"bmc_password": "******"}
    assert errors["rack1"] is None
    assert "secret://lines/rack2" in errors["rack2"]
    assert "Canary-9c" not in site.output()


def _rested(node: dict[str, Any]) -> bool:
    return node["provision_state"] == "manageable" or node["last_error"] is not None
