"""``ferroscope node`` enrols, lists, shows, changes and deletes nodes of the real service."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit
from tests.api.service import Service
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


@pytest.mark.parametrize("arguments", [(), ("n1",), ("--driver", "fake-hardware"), ("--port", "52:54:00:00:00:01")])
def test_a_node_needs_a_driver_and_something_to_be_found_by(shell: Shell, arguments: tuple[str, ...]) -> None:
    result = shell("node", "create", *arguments, check=Exit.USAGE)
    assert ("fake-hardware" in result.stderr) == ("--driver" not in arguments)
    assert shell.json("node", "list") == []


def test_a_node_whose_port_is_taken_is_not_created(shell: Shell) -> None:
    mac = examples.mac()
    shell(*CREATE, "n1", "--port", mac, check=0)
    result = shell(*CREATE, "n2", "--port", examples.mac(), "--port", mac, check=Exit.CONFLICT)
    assert mac in result.stderr
    assert "ferroscope node show n1" in result.stderr
    assert [node["name"] for node in shell.json("node", "list")] == ["n1"]
    assert len(shell.json("node", "ports", "n1")) == 1


def test_a_node_has_many_names(shell: Shell) -> None:
    mac, address = examples.mac(), "redfish_address=https://bmc1.example:8443/redfish"
    uuid = shell.json(*CREATE, "n1", "--port", mac, "-d", address)["uuid"]
    shell(*CREATE, "n2", "--port", examples.mac(), "-d", "redfish_address=https://bmc2.example", check=0)
    for name in ("n1", uuid, mac.upper(), mac.replace(":", "-"), "BMC1.example", "bmc1.example:8443"):
        assert shell.json("node", "show", name)["uuid"] == uuid, name


def test_an_address_that_two_bmcs_have_is_a_conflict_that_names_the_nodes(shell: Shell) -> None:
    for name in ("n1", "n2"):
        shell("node", "create", "--driver", "fake-hardware", name, "-d", "sim_address=127.0.0.1:6390", check=0)
    assert "n1, n2" in shell("node", "show", "127.0.0.1", check=Exit.CONFLICT).stderr


def test_setting_changes_what_is_named_and_nothing_else(shell: Shell) -> None:
    old, new = examples.mac(), examples.mac()
    shell(*CREATE, "n1", "--port", old, "-d", "user=a", "-d", "password=b", "-p", "cpus:=8", check=0)
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


def test_ports_and_validation_are_shown(shell: Shell) -> None:
    mac = examples.mac()
    shell("node", "create", "--driver", "fake-hardware", "n1", "--port", mac, check=0)
    assert shell.lines("node", "ports", "n1")[1].split()[0] == mac
    assert shell.json("node", "validate", "n1")["inspect"]["result"] is True
    assert [line.split()[0] for line in shell.lines("node", "validate", "n1")[1:]] == [
        "boot", "inspect", "management", "power",
    ]  # fmt: skip
    assert len(shell.lines("node", "validate", "n1", "--all")) > 10


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


@pytest.mark.parametrize("nothing", ["", "."])
@pytest.mark.parametrize("command", [("node", "delete"), ("inspect",), ("node", "readmit")], ids=" ".join)
def test_an_identifier_that_is_empty_or_a_dot_names_no_node(
    shell: Shell, command: tuple[str, ...], nothing: str
) -> None:
    shell("node", "create", "--driver", "fake-hardware", "one", check=0)
    result = shell(*command, nothing)
    assert result.exit_code in (Exit.NOT_FOUND, Exit.FAILURE)
    assert repr(nothing) in result.output
    assert [node["name"] for node in shell.json("node", "list")] == ["one"]


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
