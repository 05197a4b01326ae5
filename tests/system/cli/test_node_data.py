"""What is known of a node: its inventory, its switch ports, its health, its timeline."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path

from ferroscope_client.errors import Exit
from tests.api.service import Service, callback_body
from tests.support import examples
from tests.system.cli.console import Shell


def test_an_inventory_is_summarised_printed_whole_or_saved(shell: Shell, service: Service, tmp_path: Path) -> None:
    body = service.inspect(service.enrol(name="n1"))
    assert "CPU            8 x x86_64" in shell.lines("node", "inventory", "n1")
    whole = shell.json("node", "inventory", "n1")
    assert whole["inventory"] == body["inventory"]
    file = tmp_path / "inventory.json"
    shell("node", "inventory", "n1", "--save", str(file), check=0)
    assert json.loads(file.read_text()) == whole
    assert not file.stat().st_mode & 0o077


def test_an_inventory_of_a_revision_is_shown_or_saved(shell: Shell, service: Service, tmp_path: Path) -> None:
    body = service.inspect(service.enrol(name="n1"))
    whole = shell.json("inventory", "show", "n1", "--revision", "1")
    assert whole["inventory"] == body["inventory"]
    file = tmp_path / "inventory.json"
    shell("inventory", "save", "n1", str(file), check=0)
    assert json.loads(file.read_text()) == whole
    result = shell("inventory", "show", "n1", "--revision", "7", check=Exit.NOT_FOUND)
    assert "n1" in result.stderr
    assert "ferroscope inventory list n1" in result.stderr


def test_two_nodes_or_two_revisions_of_one_are_compared(shell: Shell, service: Service) -> None:
    for name in ("n1", "n2"):
        service.inspect(service.enrol(name=name))
    service.inspect(service.node("n1").uuid)
    first, _ = shell.json("inventory", "list", "n1")
    assert shell.json("inventory", "diff", "n1", "n2", "--revision", "1", check=Exit.OK)["before"] == first
    assert shell.json("inventory", "diff", "n1", service.node("n2").uuid)["other"] == service.node("n2").uuid
    assert shell.json("inventory", "diff", "n1", first["inspection"], check=Exit.FAILURE)["before"] == first
    assert shell.json("inventory", "diff", "n1", "1", "2", check=Exit.FAILURE)["other"] is None
    shell("inventory", "diff", "n1", "nobody", check=Exit.NOT_FOUND)
    shell("inventory", "diff", "n1", "--revision", "1", check=Exit.USAGE)


def test_it_is_shown_which_switch_port_a_nic_is_plugged_into(shell: Shell, service: Service) -> None:
    uuid = service.enrol(name="n1")
    body = callback_body(service.wait(uuid), examples.mac())
    body["inventory"]["interfaces"][0]["lldp"] = [
        [1, "0452540000dd01"],
        [2, "05457468312f37"],
        [5, "6c656166"],
        [4, "zz"],
        [4, "75706c696e6b0a"],
    ]
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
    service.finish(uuid)
    result = shell("node", "lldp", "n1", check=0)
    row = next(line.split() for line in result.stdout.splitlines() if line.startswith("eth0"))
    assert row[2:5] == ["leaf", "Eth1/7", "uplink"]
    assert row[-1] == "52:54:00:00:dd:01"
    assert "eth0: TLV number 3 (type 4)" in result.stdout + result.stderr
    first, second = shell.json("node", "lldp", "n1")
    assert first["lldp"]["switch_port_id"] == "Eth1/7"
    assert (second["name"], second["lldp"]) == ("eth1", {})


def test_the_health_that_the_bmc_reported_is_shown(shell: Shell, service: Service) -> None:
    node = service.enrol(name="n1")
    service.inspect(node)
    result = shell("node", "health", "n1", check=0)
    assert "collect_out_of_band" in result.stdout + result.stderr
    assert shell.json("node", "health", "n1") == {}
    drive = {"component": "drive", "name": "Disk 3", "health": "warning", "problem": "failure predicted"}
    entry = {"created": "2026-01-31T00:00:00Z", "severity": "critical", "message": "PSU 2 lost its input"}
    report = {"state": "warning", "parts": [drive], "sensors": [], "log": [entry], "complete": True}
    plugin_data = {"out_of_band": {"source": "redfish", "health": report}}
    service.save_plugin_data(node, plugin_data)
    service.learn(node, {}, plugin_data)
    assert shell.json("node", "health", "n1") == report
    shown = shell("node", "health", "n1", check=0).stdout
    assert all(text in shown for text in ("Disk 3", "failure predicted", "PSU 2 lost its input"))
    assert "Failing drives" in shell("node", "show", "n1", check=0).stdout


def test_without_lldp_it_is_said_how_to_get_it(shell: Shell, service: Service) -> None:
    service.inspect(service.enrol(name="n1"))
    result = shell("node", "lldp", "n1", check=0)
    assert "ipa-collect-lldp=1" in result.stdout + result.stderr


def test_a_node_without_an_inventory_says_how_to_get_one(shell: Shell, service: Service) -> None:
    service.enrol(name="n1")
    result = shell("node", "inventory", "n1", check=Exit.NOT_FOUND)
    assert result.stderr.count("no inventory") == 1, result.stderr
    assert "n1 has no inventory: no inspection has finished" in result.stderr
    assert "ferroscope inspect n1 --watch" in result.stderr


def test_of_a_failed_first_inspection_it_is_shown_what_it_brought_and_what_its_ramdisk_logged(
    shell: Shell, service: Service, tmp_path: Path
) -> None:
    uuid = service.enrol(name="n1")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("../journal")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"kaput"))
    body = callback_body(service.wait(uuid)) | {"logs": base64.b64encode(archive.getvalue()).decode()}
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
    service.fail(uuid)
    assert shell.json("node", "inventory", "n1")["inventory"] == body["inventory"]
    assert "CPU            8 x x86_64" in shell.lines("node", "inventory", "n1")
    assert shell.json("node", "log", "n1") == [{"name": "../journal", "text": "kaput"}]
    assert shell.json("node", "log", "n1", "--file", "other") == []
    file = tmp_path / "log.tar.gz"
    shell("node", "log", "n1", "--save", str(file), check=0)
    assert file.read_bytes() == archive.getvalue()
    assert not file.stat().st_mode & 0o077
    shell("node", "log", service.enrol(name="n2"), check=Exit.NOT_FOUND)


def test_a_timeline_shows_the_newest_inspection_or_all_of_them(shell: Shell, service: Service) -> None:
    uuid = service.enrol(name="n1")
    assert shell.json("node", "timeline", "n1")["entries"] == []
    service.wait(uuid)
    service.fail(uuid)
    service.wait(uuid)
    newest = shell.lines("node", "timeline", "n1")
    assert sum(line.startswith("inspection of ") for line in newest) == 1
    assert "waiting" in newest[0]
    everything = shell.lines("node", "timeline", "n1", "--all")
    states = [line.split(": ")[1].split()[0] for line in everything if line.startswith("inspection of ")]
    assert states == ["error", "waiting"]
    assert "why: nothing was heard (timeout)" in everything
    assert any("on its console" in line for line in everything)
    assert len(shell.json("node", "timeline", "n1", "--all")["inspections"]) == 2


def test_an_inventory_that_cannot_be_written_is_reported_in_a_sentence(
    service: Service, shell: Shell, tmp_path: Path
) -> None:
    service.inspect(service.enrol(name="one"))
    for command in (("node", "inventory", "one", "--save"), ("inventory", "save", "one")):
        result = shell(*command, str(tmp_path / "none" / "x.json"), check=Exit.FAILURE)
        assert f"{tmp_path}/none/x.json" in result.stderr
