"""ironic-python-agent's own code calls back, looks itself up and sends heartbeats."""

from __future__ import annotations

import re
import urllib.request

import pytest

from tests.support.examples import mac
from tests.support.processes import PATIENCE
from tests.system.clients.environment import ClientError
from tests.system.clients.site import Site

APIS = ["bare_metal", "introspection"]
# How each API answers a callback that it refuses.
REFUSED = {"bare_metal": "error 404", "introspection": "error 400"}


@pytest.mark.parametrize("api", APIS)
def test_the_agent_inspects_its_machine(site: Site, api: str) -> None:
    address, other = mac(), mac()
    node = site.enroll_fake(address)
    site.inspect(node, until="inspect wait")
    assert site.call("ramdisk.inspect", api=api, macs=[address, other]) == node
    site.await_state(node, "manageable")
    data = site.get(f"/v1/nodes/{node}/inventory")
    assert [nic["mac_address"] for nic in data["inventory"]["interfaces"]] == [address, other]
    assert data["inventory"]["memory"]["physical_mb"] == 65_536
    assert data["plugin_data"]["root_disk"]["name"] == "/dev/sda"
    assert data["plugin_data"]["error"] is None
    assert site.node(node)["properties"]["cpu_arch"] == "x86_64"


@pytest.mark.parametrize("api", APIS)
def test_the_agent_returns_the_secret_of_its_inspection(site: Site, api: str) -> None:
    address = mac()
    node = site.enroll_fake(address)
    site.inspect(node, until="inspect wait")
    with urllib.request.urlopen(f"{site.bare_metal}/v1/boot.ipxe?mac={address}", timeout=PATIENCE) as answer:
        script = answer.read().decode()
    secret = script.partition("set secret ")[2].strip()
    assert re.fullmatch("[0-9a-f]{64}", secret), script  # iPXE takes a leading hyphen for an option
    with pytest.raises(ClientError, match=REFUSED[api]):
        site.call("ramdisk.inspect", api=api, macs=[address], secret=secret[::-1])
    assert site.call("ramdisk.inspect", api=api, macs=[address], secret=secret) == node
    site.await_state(node, "manageable")
    entries = site.get(f"/v1/nodes/{node}/timeline")["inspections"][0]["entries"]
    assert [entry["detail"]["proof"] for entry in entries if entry["step"] == "callback"] == ["verified"]


@pytest.mark.parametrize("api", APIS)
def test_what_is_unknown_or_not_waited_for_learns_nothing(site: Site, api: str) -> None:
    address = mac()
    node = site.enroll_fake(address)
    messages = set()
    for macs in ([mac()], [address]):
        with pytest.raises(ClientError) as failure:
            site.call("ramdisk.call_back", api=api, bodies=[macs])
        assert failure.value.kind == "InspectionError"
        messages.add(failure.value.message)
    assert len(messages) == 1
    assert REFUSED[api] in messages.pop()
    assert site.node(node)["provision_state"] == "manageable"


def test_an_error_in_the_ramdisk_fails_the_inspection_with_its_text(site: Site) -> None:
    address = mac()
    node = site.enroll_fake(address)
    site.inspect(node, until="inspect wait")
    site.call("ramdisk.call_back", api="bare_metal", bodies=[[address]], error="collector x failed: no lshw")
    site.await_state(node, "inspect failed")
    assert "collector x failed: no lshw" in site.node(node)["last_error"]


def test_the_agent_looks_itself_up_and_proves_itself_by_its_token(site: Site) -> None:
    address = mac()
    node = site.enroll_fake(address)
    site.inspect(node, until="inspect wait")
    found = site.call("ramdisk.look_up", macs=[address, mac()])
    assert found["node"]["uuid"] == node
    assert found["config"]["agent_token_required"] is True
    site.call("ramdisk.heartbeat", node=node, token=found["config"]["agent_token"])
    with pytest.raises(ClientError, match="Error 404") as failure:
        site.call("ramdisk.heartbeat", node=node, token="somebody-else")
    assert failure.value.kind == "HeartbeatError"
    again = site.call("ramdisk.look_up", macs=[address], node=node)
    assert again["config"]["agent_token"] == "******"


def test_the_agent_keeps_the_token_that_it_booted_with_whoever_was_faster(site: Site) -> None:
    address = mac()
    node = site.enroll_fake(address)
    site.inspect(node, until="inspect wait")
    site.call("ramdisk.look_up", macs=[address])
    with urllib.request.urlopen(f"{site.bare_metal}/v1/boot.ipxe?mac={address}", timeout=PATIENCE) as answer:
        (token,) = re.findall(r"^set token (\S+)$", answer.read().decode(), re.MULTILINE)
    assert site.call("ramdisk.keep", macs=[address], token=token) == token
