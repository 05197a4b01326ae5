"""A machine that nobody enrolled is inspected by ironic-python-agent, with the hardware that it really has."""

from __future__ import annotations

import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.service import executable
from tests.support.processes import until
from tests.system.clients.environment import Clients
from tests.system.clients.site import Site
from tests.system.clients.site import site as run_site

_DISCOVERY = "[auto_discovery]\nenabled = true\ndriver = fake-hardware\n"


def ferroscope(place: Site, *words: str) -> Any:
    """Return what the command line says, for programs."""
    command = [executable(), *words, "--url", place.bare_metal, "-o", "json"]
    return msgspec.json.decode(subprocess.run(command, capture_output=True, check=True).stdout)


def ended(place: Site, node: str) -> Any:
    """Return the newest inspection of the node, once it has ended."""
    path = f"/v1/nodes/{node}/inspections"
    assert until(lambda: place.get(path)["inspections"][0]["finished_at"] is not None)
    return place.get(path)["inspections"][0]


@pytest.mark.parametrize("api", ["bare_metal", "introspection"])
def test_the_agent_discovers_this_very_machine(sqlite_url: str, tmp_path: Path, clients: Clients, api: str) -> None:
    with run_site(tmp_path, sqlite_url, clients, extra=_DISCOVERY) as place:
        node = place.call("agent.inspect", api=api)
        assert ended(place, node)["state"] == "finished"
        inventory = place.get(f"/v1/nodes/{node}/inventory")["inventory"]
        assert inventory["hostname"] == socket.gethostname()
        assert inventory["cpu"]["architecture"] == platform.machine()
        assert inventory["memory"]["physical_mb"] > 0
        addresses = {(nic / "address").read_text().strip() for nic in Path("/sys/class/net").iterdir()}
        assert {nic["mac_address"] for nic in inventory["interfaces"]} <= addresses
        shown = place.node(node)
        assert (shown["auto_discovered"], shown["inbox"], shown["provision_state"]) == (True, True, "enroll")
        assert shown["properties"]["cpu_arch"] == platform.machine()
        assert "approve it first" in place.baremetal("node", "manage", node, code=1).err
        assert [one["uuid"] for one in ferroscope(place, "node", "inbox")] == [node]
        assert ferroscope(place, "node", "approve", node)[0]["result"] == "approved"
        place.baremetal("node", "manage", "--wait", "30", node)
        place.inspect(node, until="inspect wait")
        assert place.call("agent.inspect", api=api) == node
        place.await_state(node, "manageable")
