"""The script by which a machine boots: who gets it, with which secret, and how its MAC is not guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ferroscope.config.options import BootSettings
from ferroscope.contracts.store import Query
from ferroscope.core import lookup
from ferroscope.core.model import Severity
from tests.api.booted import API, ATTACKER, MACHINE, SCRIPT, Site
from tests.api.service import Service, callback_body
from tests.support import databases, examples


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., Site]:
    """Return a function that makes a site."""
    return partial(Site, tmp_path)


def test_the_script_is_served_to_machines_that_wait_and_says_who_asked(site: Callable[..., Site]) -> None:
    served = site("boot script")
    get = served.service.bare_metal.get
    nothing = get(f"/v1/boot.ipxe?mac={examples.mac()}")
    assert (nothing.status_code, "secret " in nothing.text) == (200, False)
    assert get("/v1/boot.ipxe").status_code == get("/v1/boot.ipxe?mac=nonsense").status_code == 400
    spelled = served.mac.replace(":", "-").upper()
    assert "set secret" in get(f"/v1/boot.ipxe?mac={spelled}", remote_addr=MACHINE).text
    for source in (MACHINE, ATTACKER, ATTACKER, MACHINE):
        served.fetched(source)
    loaded = [entry[2] for entry in served.timeline() if entry[0] == "boot-script"]
    assert len(loaded) == 2
    assert MACHINE in loaded[0]
    assert ATTACKER in loaded[1]
    assert MACHINE in loaded[1]
    served.power_on()
    served.call(served.secret, source=MACHINE)
    served.service.finish(served.node)
    assert served.fetched(MACHINE) == ""


def test_who_has_read_the_secret_can_report_for_that_inspection_and_that_is_all_it_opens(
    site: Callable[..., Site],
) -> None:
    served = site("boot script")
    client = served.service.bare_metal
    other = served.service.enrol(driver="able", driver_info={"bmc_address": "10.99.0.8"})
    client.post("/v1/ports", {"node_ident": other, "address": (others_mac := examples.mac())})
    client.put(f"/v1/nodes/{other}/states/provision", {"target": "inspect"})
    served.power_on()
    secret, node = served.fetched(ATTACKER), served.node
    beat = {"callback_url": "https://198.51.100.66:9999", "agent_token": lookup.agent_token(secret)}
    assert client.post(f"/v1/heartbeat/{other}", beat).status_code == 404
    body = callback_body(others_mac, serial="POISONED")
    named = served.service.client("1.84").post(f"/v1/continue_inspection?node_uuid={other}&secret={secret}", body)
    assert named.status_code == 404
    # The report is the inspection's, whatever machine it describes; the timeline says where it came from.
    assert served.call(secret, source=ATTACKER, body=body).status_code == 202
    served.service.consume()
    waits = served.service.store.read(lambda tx: tx.inspections.get(str(tx.nodes.get(other).inspection)))
    assert waits.digest is None
    served.service.finish(node)
    assert any(step == "callback" and ATTACKER in message for step, _, message in served.timeline())
    served.start()
    served.power_on()
    assert served.call(secret, source=ATTACKER).status_code == 404
    assert client.post(f"/v1/heartbeat/{node}", beat).status_code == 404
    key = lookup.disk_key(secret)
    assert client.get(f"/v1/ramdisk_parameters/{node}/{key}/disk.img").status_code == 404


def test_a_node_with_the_boot_interface_ipxe_boots_by_the_script_and_proves_itself(site: Callable[..., Site]) -> None:
    served = site("ipxe")
    served.power_on()
    script = served.service.bare_metal.get(f"/v1/boot.ipxe?mac={served.mac}", remote_addr=MACHINE).text
    assert f"kernel --timeout 60000 --name kernel {API}/ipa.kernel " in script
    (secret,) = re.findall(rf"={API}/v1/continue_inspection\?secret=(\S+)", script)
    assert served.call("wrong", source=MACHINE).status_code == 404
    assert served.call(secret, source=MACHINE).status_code == 202
    served.service.finish(served.node)
    assert "kernel" not in served.service.bare_metal.get(f"/v1/boot.ipxe?mac={served.mac}").text


def test_a_node_without_a_known_mac_cannot_get_the_script_and_needs_no_secret(site: Callable[..., Site]) -> None:
    served = site("boot script")
    node = served.service.enrol(driver="able", driver_info={"bmc_address": "10.99.0.8"})
    target = {"target": "inspect"}
    assert served.service.bare_metal.put(f"/v1/nodes/{node}/states/provision", target).status_code == 202
    body = callback_body(examples.mac(), bmc_address="10.99.0.8")
    assert served.call(None, source=MACHINE, body=body).status_code == 202


@pytest.mark.parametrize("path", ["/v1/boot.ipxe?mac={}", "/v1/lookup?addresses={}"])
def test_guessing_macs_is_limited_and_does_not_stop_the_machine_behind_the_same_address(
    tmp_path: Path, path: str
) -> None:
    boot = {"boot": BootSettings(machine_script_url=SCRIPT)}
    service = Service(databases.sqlite(tmp_path), sections=boot, failure_burst=3, failure_rate=0.0001)

    def get(mac: str, source: str = ATTACKER) -> int:
        return int(service.bare_metal.get(path.format(mac), remote_addr=source).status_code)

    node = service.enrol(driver="sim")
    mac = service.wait(node)
    guesses = [get(examples.mac()) for _ in range(25)]
    refused = 200 if "boot" in path else 404
    assert guesses == [refused] * 3 + [429] * 22
    assert [get(mac) for _ in range(5)] == [200] * 5
    # Enumeration is bounded: after ten times as many guesses, nothing is looked up for this source.
    assert [get(examples.mac()) for _ in range(10)] == [429] * 10
    assert get(mac) == 429
    assert get(mac, MACHINE) == 200
    # Whoever knows the secret needs no luck.
    inspection = service.store.read(lambda tx: tx.inspections.get(str(tx.nodes.get(node).inspection)))
    query = f"/v1/continue_inspection?secret={inspection.secret}"
    assert service.bare_metal.post(query, callback_body(mac), remote_addr=ATTACKER).status_code == 202


def test_each_address_that_took_the_script_is_told_or_counted(site: Callable[..., Site]) -> None:
    served = site("boot script")
    sources = [f"198.51.100.{number}" for number in range(1, 13)]
    for source in (*sources, sources[0], MACHINE):
        assert served.fetched(source)
    entries = served.service.store.read(lambda tx: tx.journal.list(Query(filters={"node": served.node})))
    loaded = [entry for entry in entries if entry.step == "boot-script"]
    assert len(loaded) == 9
    assert [entry.detail["source"] for entry in loaded[:8]] == sources[:8]
    assert loaded[8].detail == {"source": MACHINE, "more": 5}
    assert (loaded[8].severity, MACHINE in loaded[8].message) == (Severity.WARNING, True)
