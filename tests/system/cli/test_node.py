"""``ferroscope node`` enrols, lists, shows, changes and deletes nodes of the real service."""

from __future__ import annotations

import base64
import csv
import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete

from ferroscope.cli import lookup
from ferroscope.cli.exits import Exit
from ferroscope.cli.main import main
from tests.api.service import Service, callback_body
from tests.support import examples
from tests.system.cli.console import Shell

CREATE = ("node", "create", "--driver", "fake-hardware")


def test_a_node_is_enrolled_with_its_ports_and_documents(shell: Shell) -> None:
    one, two = examples.mac(), examples.mac()
    node = shell.json(
        *CREATE, "n1", "--port", one.upper(), "--port", two, "-d", "ipmi_address=10.0.0.5",
        "-d", "ipmi_port:=623", "-p", "cpus:=8", "-e", "rack=A1", "--owner", "ops", "--description", "new",
    )  # fmt: skip
    assert node["provision_state"] == "enroll"
    shown = shell.json("node", "show", "n1")
    assert shown["driver_info"] == {"ipmi_address": "10.0.0.5", "ipmi_port": 623}
    assert (shown["properties"], shown["extra"], shown["owner"]) == ({"cpus": 8}, {"rack": "A1"}, "ops")
    assert [port["address"] for port in shown["ports"]] == [one, two]


def test_creating_tells_people_how_to_go_on(shell: Shell) -> None:
    lines = shell.lines("node", "create", "--driver", "fake-hardware", "n1")
    assert "ferroscope node manage n1 --wait" in lines[-1]


@pytest.mark.parametrize("arguments", [(), ("n1",), ("--driver", "fake-hardware"), ("--port", "52:54:00:00:00:01")])
def test_a_node_needs_a_driver_and_something_to_be_found_by(shell: Shell, arguments: tuple[str, ...]) -> None:
    result = shell("node", "create", *arguments, check=Exit.USAGE)
    assert ("fake-hardware" in result.stderr) == ("--driver" not in arguments)
    assert shell.json("node", "list") == []


def test_a_node_whose_port_is_taken_is_not_created(shell: Shell) -> None:
    mac = examples.mac()
    shell("node", "create", "--driver", "fake-hardware", "n1", "--port", mac, check=0)
    result = shell(
        "node",
        "create",
        "--driver",
        "fake-hardware",
        "n2",
        "--port",
        examples.mac(),
        "--port",
        mac,
        check=Exit.CONFLICT,
    )
    assert mac in result.stderr
    assert "ferroscope node show n1" in result.stderr
    assert [node["name"] for node in shell.json("node", "list")] == ["n1"]
    assert len(shell.json("node", "ports", "n1")) == 1


def test_a_taken_name_is_a_conflict(shell: Shell) -> None:
    shell("node", "create", "--driver", "fake-hardware", "n1", check=0)
    assert '"n1"' in shell("node", "create", "--driver", "fake-hardware", "n1", check=Exit.CONFLICT).stderr


def test_an_unknown_driver_is_a_failure_that_names_the_known_ones(shell: Shell) -> None:
    assert "fake-hardware" in shell("node", "create", "n1", "--driver", "magic", check=Exit.USAGE).stderr


@pytest.mark.parametrize("spelling", ["name", "uuid", "mac", "mac-dashes", "bmc", "bmc-port"])
def test_a_node_has_many_names(shell: Shell, spelling: str) -> None:
    mac = examples.mac()
    node = shell.json(
        "node",
        "create",
        "--driver",
        "fake-hardware",
        "n1",
        "--port",
        mac,
        "-d",
        "redfish_address=https://bmc1.example:8443/redfish",
    )
    shell(
        "node",
        "create",
        "--driver",
        "fake-hardware",
        "n2",
        "--port",
        examples.mac(),
        "-d",
        "redfish_address=https://bmc2.example",
        check=0,
    )
    spelled = {
        "name": "n1",
        "uuid": node["uuid"],
        "mac": mac.upper(),
        "mac-dashes": mac.replace(":", "-"),
        "bmc": "BMC1.example",
        "bmc-port": "bmc1.example:8443",
    }
    assert shell.json("node", "show", spelled[spelling])["uuid"] == node["uuid"]


@pytest.mark.parametrize(
    "ident",
    ["n9", "52:54:00:00:00:99", "52-54-00-00-00-99", "10.9.9.9", "00000000-0000-4000-8000-000000000000", "a b"],
)
def test_a_node_that_is_not_there_has_its_own_exit_code(shell: Shell, ident: str) -> None:
    shell("node", "create", "--driver", "fake-hardware", "n1", check=0)
    result = shell("node", "show", ident, check=Exit.NOT_FOUND)
    assert result.stdout == ""
    assert f"node {ident}" in result.stderr
    assert "ferroscope node list" in result.stderr


def test_an_address_that_two_bmcs_have_is_a_conflict_that_names_the_nodes(shell: Shell) -> None:
    for name in ("n1", "n2"):
        shell("node", "create", "--driver", "fake-hardware", name, "-d", "sim_address=127.0.0.1:6390", check=0)
    assert "n1, n2" in shell("node", "show", "127.0.0.1", check=Exit.CONFLICT).stderr


def test_the_list_can_be_narrowed_sorted_and_limited(shell: Shell, service: Service) -> None:
    for name, driver in (("b", "fake-hardware"), ("a", "sim"), ("c", "fake-hardware")):
        service.enrol(name=name, driver=driver)
    b = service.node("b").uuid
    service.wait(b)
    service.fail(b)
    assert [node["name"] for node in shell.json("node", "list")] == ["a", "b", "c"]
    assert [node["name"] for node in shell.json("node", "list", "--sort", "id")] == ["b", "a", "c"]
    assert [node["name"] for node in shell.json("node", "list", "--limit", "1")] == ["a"]
    assert [node["name"] for node in shell.json("node", "list", "--sort", "name:desc")] == ["c", "b", "a"]
    assert [node["name"] for node in shell.json("node", "list", "--driver", "sim")] == ["a"]
    assert [node["name"] for node in shell.json("node", "list", "--state", "inspect failed")] == ["b"]
    assert [node["name"] for node in shell.json("node", "list", "--failed")] == ["b"]
    assert len(shell.json("node", "list", "--limit", "2")) == 2
    assert shell.json("node", "list", "--auto-discovered") == []
    assert len(shell.json("node", "list", "--no-maintenance")) == 3


def test_a_list_longer_than_a_page_is_shown_whole(shell: Shell, service: Service) -> None:
    names = [f"n{number:04}" for number in range(1005)]
    service.store.write(lambda tx: [tx.nodes.add(examples.node(name=name)) for name in names])
    assert {node["name"] for node in shell.json("node", "list", "--fields", "name")} == set(names)
    assert len(shell.json("node", "list", "--limit", "1002")) == 1002


def test_fields_are_those_that_are_asked_for_in_their_order(shell: Shell) -> None:
    shell("node", "create", "--driver", "fake-hardware", "n1", "-p", "cpus:=8", check=0)
    assert shell.json("node", "list", "--fields", "properties,name") == [{"properties": {"cpus": 8}, "name": "n1"}]
    assert shell.lines("node", "list", "--fields", "properties,name") == ["PROPERTIES  NAME", "cpus = 8    n1"]
    assert "colour" in shell("node", "list", "--fields", "colour", check=Exit.USAGE).stderr


def test_an_empty_list_tells_people_how_to_begin(shell: Shell) -> None:
    assert "ferroscope node create" in shell("node", "list", check=0).stdout
    assert shell.lines("node", "list", "--failed") == ["No matching nodes."]
    assert shell.json("node", "list") == []


def test_the_three_formats_tell_the_same(shell: Shell) -> None:
    shell("node", "create", "--driver", "fake-hardware", "n1", check=0)
    assert yaml.safe_load(shell("node", "list", "-o", "yaml", check=0).stdout) == shell.json("node", "list")
    header, row = shell.lines("node", "list")
    assert header.split()[:4] == ["NAME", "STATE", "POWER", "MAINT"]
    assert row.split()[0] == "n1"


def test_lists_are_in_natural_order_with_the_hardware_and_as_csv(shell: Shell, service: Service) -> None:
    vendor = {"manufacturer": "Dell Inc.", "product_name": "PowerEdge R650 (SKU=0912)", "serial_number": "DY4FGT3"}
    for name in ("sim-10", "sim-9"):
        service.enrol(name=name)
    uuid = service.enrol(name="sim-2")
    service.learn(uuid, {"system_vendor": vendor, "memory": {"physical_mb": 1024 * 256}})
    assert [node["name"] for node in shell.json("node", "list")] == ["sim-2", "sim-9", "sim-10"]
    row = next(csv.DictReader(shell.lines("node", "list", "-o", "csv")))
    assert (row["name"], row["vendor"], row["model"]) == ("sim-2", "Dell Inc.", "PowerEdge R650 (SKU=0912)")
    assert (row["serial"], row["memory"], row["uuid"]) == ("DY4FGT3", str(2**38), uuid)
    header, first, *_ = shell.lines("node", "list", "-o", "wide")
    assert header.split()[-2:] == ["UUID", "ERROR"]
    assert uuid in first
    shown = dict(line.split("  ", 1) for line in shell.lines("node", "show", "sim-2") if "  " in line)
    assert shown["Serial number"].strip() == "DY4FGT3"
    assert shown["Memory"].strip() == "256 GiB"


def test_setting_changes_what_is_named_and_nothing_else(shell: Shell) -> None:
    old, new = examples.mac(), examples.mac()
    shell(
        "node",
        "create",
        "--driver",
        "fake-hardware",
        "n1",
        "--port",
        old,
        "-d",
        "user=a",
        "-d",
        "password=b",
        "-p",
        "cpus:=8",
        check=0,
    )
    shell(
        "node", "set", "n1", "--name", "n2", "-d", "user=c", "-p", "tilde~/slash=1", "--unset", "properties/cpus",
        "--maintenance", "--add-port", new, "--remove-port", old, check=0,
    )  # fmt: skip
    node = shell.json("node", "show", "n2")
    assert node["driver_info"] == {"user": "c", "password": "******"}
    assert node["properties"] == {"tilde~/slash": "1"}
    assert node["maintenance"] is True
    assert [port["address"] for port in node["ports"]] == [new]
    shell("node", "set", "n2", "--no-maintenance", "--unset", "name", check=0)
    assert shell.json("node", "show", node["uuid"])["name"] is None


def test_a_port_of_another_node_is_not_removed(shell: Shell) -> None:
    mac = examples.mac()
    shell("node", "create", "--driver", "fake-hardware", "n1", "--port", mac, check=0)
    shell("node", "create", "--driver", "fake-hardware", "n2", check=0)
    assert mac in shell("node", "set", "n2", "--remove-port", mac, check=Exit.NOT_FOUND).stderr
    assert len(shell.json("node", "ports", "n1")) == 1


def test_deleting_many_goes_on_after_a_failure_and_tells_of_it(shell: Shell) -> None:
    for name in ("n1", "n2"):
        shell("node", "create", "--driver", "fake-hardware", name, check=0)
    results = shell.json("node", "delete", "n1", "n9", "n2", check=Exit.NOT_FOUND)
    assert [(result["node"], result["result"]) for result in results] == [
        ("n1", "deleted"),
        ("n9", "failed"),
        ("n2", "deleted"),
    ]
    assert shell.json("node", "list") == []


def test_a_node_under_inspection_is_not_deleted(shell: Shell, service: Service) -> None:
    service.wait(service.enrol(name="n1"))
    assert "ferroscope node abort" in shell("node", "delete", "n1", check=Exit.CONFLICT).stdout


def test_ports_and_validation_are_shown(shell: Shell) -> None:
    mac = examples.mac()
    shell("node", "create", "--driver", "fake-hardware", "n1", "--port", mac, check=0)
    assert shell.lines("node", "ports", "n1")[1].split()[0] == mac
    assert shell.json("node", "validate", "n1")["inspect"]["result"] is True
    assert [line.split()[0] for line in shell.lines("node", "validate", "n1")[1:]] == [
        "boot", "inspect", "management", "power",
    ]  # fmt: skip
    assert len(shell.lines("node", "validate", "n1", "--all")) > 10


@pytest.mark.parametrize(
    "wrong", [("node", "create", "a b", "--driver", "fake-hardware"), ("node", "list", "--sort", "colour")]
)
def test_a_value_that_cannot_be_is_a_usage_error(shell: Shell, wrong: tuple[str, ...]) -> None:
    shell(*wrong, check=Exit.USAGE)


def test_drivers_and_what_they_read_are_listed(shell: Shell) -> None:
    drivers = shell.json("driver", "list")
    assert "fake-hardware" in [one["name"] for one in drivers]
    for one in drivers:
        assert isinstance(shell.json("driver", "properties", one["name"]), dict)
    shell("driver", "properties", "magic", check=Exit.NOT_FOUND)


def test_the_address_may_be_given_before_the_command(shell: Shell) -> None:
    other = Shell("http://127.0.0.1:1")
    assert other.json("--url", shell.url, "node", "list") == []
    other("--url", "http://127.0.0.1:1", "node", "list", "--url", shell.url, check=0)
    other("node", "list", check=Exit.UNREACHABLE)


def test_names_of_nodes_are_completed(shell: Shell, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rack1-10", "rack1-9", "other"):
        service.enrol(name=name)
    monkeypatch.setenv("FERROSCOPE_URL", shell.url)
    complete = ShellComplete(main, {}, "ferroscope", "_FERROSCOPE_COMPLETE")
    found = complete.get_completions(["node", "show"], "rack")
    assert [item.value for item in found] == ["rack1-9", "rack1-10"]
    states = complete.get_completions(["node", "list", "--state"], "inspect")
    assert {item.value for item in states} == {"inspecting", "inspect-wait", "inspect-failed"}


def test_an_inventory_is_summarised_printed_whole_or_saved(shell: Shell, service: Service, tmp_path: Path) -> None:
    body = service.inspect(service.enrol(name="n1"))
    assert "CPU            8 x x86_64" in shell.lines("node", "inventory", "n1")
    whole = shell.json("node", "inventory", "n1")
    assert whole["inventory"] == body["inventory"]
    file = tmp_path / "inventory.json"
    shell("node", "inventory", "n1", "--save", str(file), check=0)
    assert json.loads(file.read_text()) == whole


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
    ]
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
    service.finish(uuid)
    result = shell("node", "lldp", "n1", check=0)
    row = next(line.split() for line in result.stdout.splitlines() if line.startswith("eth0"))
    assert row[2:4] == ["leaf", "Eth1/7"]
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
    assert any("Check PXE boot" in line for line in everything)
    assert len(shell.json("node", "timeline", "n1", "--all")["inspections"]) == 2


@pytest.mark.parametrize("nothing", ["", ".", ".."])
@pytest.mark.parametrize(
    "command",
    [
        ("node", "show"),
        ("node", "delete"),
        ("node", "manage"),
        ("node", "power"),
        ("node", "timeline"),
        ("inspect",),
        ("inspect", "reapply"),
        ("inventory", "show"),
        ("node", "readmit"),
    ],
    ids=" ".join,
)
def test_an_identifier_that_is_empty_or_a_dot_names_no_node(
    shell: Shell, command: tuple[str, ...], nothing: str
) -> None:
    shell("node", "create", "--driver", "fake-hardware", "one", check=0)
    result = shell(*command, nothing)
    assert result.exit_code in (Exit.NOT_FOUND, Exit.FAILURE)
    assert repr(nothing) in result.output
    assert [node["name"] for node in shell.json("node", "list")] == ["one"]


def test_an_inventory_that_cannot_be_written_is_told_in_a_sentence(
    service: Service, shell: Shell, tmp_path: Path
) -> None:
    service.inspect(service.enrol(name="one"))
    for command in (("node", "inventory", "one", "--save"), ("inventory", "save", "one")):
        result = shell(*command, str(tmp_path / "none" / "x.json"), check=Exit.FAILURE)
        assert f"{tmp_path}/none/x.json" in result.stderr


@pytest.mark.parametrize("inventory", [5, {"interfaces": 5}, {"interfaces": [5], "memory": "x", "disks": {}}])
def test_an_inventory_of_any_shape_is_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch, inventory: object) -> None:
    shell("node", "create", "--driver", "fake-hardware", "one", check=0)
    monkeypatch.setattr(lookup, "fetch", lambda *_: {"inventory": inventory, "plugin_data": [5]})
    for command in (("node", "inventory"), ("inventory", "show"), ("node", "lldp")):
        shell(*command, "one", check=0)


def test_where_one_change_is_refused_none_is_made(shell: Shell) -> None:
    taken, old, new = examples.mac(), examples.mac(), examples.mac()
    shell("node", "create", "--driver", "fake-hardware", "other", "--port", taken, check=0)
    shell("node", "create", "--driver", "fake-hardware", "one", "--port", old, check=0)
    before = shell.json("node", "show", "one")
    change = ("node", "set", "one", "-p", "a=1", "--add-port", new, "--remove-port", old)
    shell(*change, "--add-port", taken, check=Exit.CONFLICT)
    shell(*change, "--remove-port", taken, check=Exit.NOT_FOUND)
    shell(*change, "--name", "other", check=Exit.CONFLICT)
    after = shell.json("node", "show", "one")
    assert (after["properties"], after["ports"]) == (before["properties"], before["ports"])
    shell(*change, check=0)
    assert [port["address"] for port in shell.json("node", "show", "one")["ports"]] == [new]


@pytest.mark.parametrize("asked", [("--no-maintenance",), ("--owner", ""), ("--failed",), ("--enrolled",)])
def test_a_filter_that_nothing_fits_is_told_as_such(shell: Shell, asked: tuple[str, ...]) -> None:
    assert shell.lines("node", "list", *asked)[-1] == "No matching nodes."
    assert "ferroscope node create" in shell.lines("node", "list")[-1]


def test_a_very_long_name_of_no_node_is_cut(shell: Shell) -> None:
    assert len(shell("node", "show", "x" * 5000, check=Exit.NOT_FOUND).stderr) < 250
