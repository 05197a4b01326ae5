"""``ferroscope node import`` and ``export``: many nodes from a file, as often as one likes, and back into a file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from ferroscope_client.cli.node import write
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.fast.docs.pages import page, typed
from tests.system.cli.console import Shell

MACS = [f"52:54:00:00:01:{number:02x}" for number in range(8)]
_BMC = ",".join(f"driver_info/redfish_{name}" for name in ("address", "username", "password"))
SHEET = f"""\ufeffname,driver,macs,{_BMC},owner,extra/rack
# a comment
r1-u01,fake-hardware,{MACS[0].upper()} {MACS[1]},https://192.0.2.1,root,first secret,ops,"A1, left"

r1-u02,fake-hardware,{MACS[2]},https://192.0.2.2,root,secret://file/two,,A1
,fake-hardware,{MACS[3]},,,,,
"""


def results(found: list[dict[str, Any]]) -> list[str]:
    return [one["result"] for one in found]


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    file = tmp_path / "rack.csv"
    file.write_text(SHEET, encoding="utf-8")
    return file


def test_a_file_is_imported_once_however_often_it_is_imported(shell: Shell, service: Service, sheet: Path) -> None:
    planned = shell.json("node", "import", str(sheet), "--dry-run")
    assert results(planned) == ["would be created"] * 3
    assert shell.json("node", "list") == []
    done = shell.json("node", "import", str(sheet))
    assert results(done) == ["created"] * 3
    node = shell.json("node", "show", "r1-u01")
    assert [port["address"] for port in node["ports"]] == MACS[:2]
    assert (node["owner"], node["extra"]) == ("ops", {"rack": "A1, left"})
    assert service.node(node["uuid"]).driver_info == {
        "redfish_address": "https://192.0.2.1",
        "redfish_username": "root",
        "redfish_password": "first secret",
    }
    again = shell.json("node", "import", str(sheet))
    assert results(again) == ["unchanged"] * 3
    assert [one["uuid"] for one in again] == [one["uuid"] for one in done]
    assert len(shell.json("node", "list")) == 3
    assert "first secret" not in json.dumps([planned, done, again])


def test_labels_survive_every_format(shell: Shell, service: Service, tmp_path: Path) -> None:
    sheet = tmp_path / "labels.csv"
    sheet.write_text('name,driver,labels,labels/role\na,fake-hardware,"rack=r1,spare",web\nb,fake-hardware,,\n')
    assert results(shell.json("node", "import", str(sheet))) == ["created"] * 2
    expected = {"a": {"rack": "r1", "role": "web", "spare": ""}, "b": {}}
    for kind in ("csv", "yaml", "json"):
        file = tmp_path / f"out.{kind}"
        file.write_text(shell("node", "export", "-o", kind, check=0).stdout)
        for name in expected:
            shell("node", "delete", name, "--yes", check=0)
        assert results(shell.json("node", "import", str(file))) == ["created"] * 2
        assert {one: shell.json("node", "show", one)["labels"] for one in expected} == expected
        assert results(shell.json("node", "import", str(file))) == ["unchanged"] * 2
    assert "rack=r1,role=web,spare" in shell("node", "export", "-l", "spare", check=0).stdout


def test_what_differs_is_changed_and_nothing_else(shell: Shell, service: Service, sheet: Path, tmp_path: Path) -> None:
    shell("node", "import", str(sheet), check=0)
    shell("node", "set", "r1-u01", "--description", "kept", "-e", "kept=too", check=0)
    changed = tmp_path / "changed.csv"
    changed.write_text(
        SHEET.replace("192.0.2.1", "192.0.2.9")
        .replace("first secret", "second secret")
        .replace(f",{MACS[2]},", f",{MACS[2]};{MACS[4]},")
    )
    planned = shell.json("node", "import", str(changed), "--dry-run")
    assert results(planned) == ["would be changed", "would be changed", "unchanged"]
    assert shell.json("node", "show", "r1-u01")["driver_info"]["redfish_address"] == "https://192.0.2.1"
    assert results(shell.json("node", "import", str(changed))) == ["changed", "changed", "unchanged"]
    node = shell.json("node", "show", "r1-u01")
    assert (node["description"], node["extra"]) == ("kept", {"rack": "A1, left", "kept": "too"})
    stored = service.node(node["uuid"]).driver_info
    assert (stored["redfish_address"], stored["redfish_password"]) == ("https://192.0.2.9", "second secret")
    assert [port["address"] for port in shell.json("node", "show", "r1-u02")["ports"]] == [MACS[2], MACS[4]]


def test_a_stored_password_is_replaced_on_request_only(shell: Shell, service: Service, sheet: Path) -> None:
    shell("node", "import", str(sheet), check=0)
    sheet.write_text(SHEET.replace("first secret", "second secret"))
    assert results(shell.json("node", "import", str(sheet))) == ["unchanged"] * 3
    uuid = shell.json("node", "show", "r1-u01")["uuid"]
    assert service.node(uuid).driver_info["redfish_password"] == "first secret"
    found = shell.json("node", "import", str(sheet), "--update-passwords")
    assert results(found) == ["changed", "changed", "unchanged"]
    assert service.node(uuid).driver_info["redfish_password"] == "second secret"
    assert found[0]["detail"] == "driver_info/redfish_password"


def test_bmc_columns_are_the_properties_of_the_driver(shell: Shell, service: Service, tmp_path: Path) -> None:
    file = tmp_path / "bmc.csv"
    file.write_text("name,bmc_address,bmc_username,bmc_password\nn1,192.0.2.7,root,secret 7\n")
    (refused,) = shell.json("node", "import", str(file), check=Exit.FAILURE)
    assert "bmc_address, bmc_username, bmc_password need a driver" in refused["detail"]
    (refused,) = shell.json("node", "import", str(file), "--driver", "nonsense", check=Exit.FAILURE)
    assert "nonsense" in refused["detail"]
    shell("node", "import", str(file), "--driver", "fake-hardware", check=0)
    given = {"bmc_address": "192.0.2.7", "bmc_username": "root", "bmc_password": "secret 7"}
    assert service.node(shell.json("node", "show", "n1")["uuid"]).driver_info == given


@pytest.mark.parametrize("kind", ["csv", "yaml", "json"])
def test_what_is_exported_can_be_imported_again(shell: Shell, sheet: Path, tmp_path: Path, kind: str) -> None:
    shell("node", "import", str(sheet), check=0)
    shell("node", "set", "r1-u02", "-p", "cpus:=8", "-e", 'list:=["a",1]', "--retired", "--reason", "old", check=0)
    exported = shell("node", "export", "-o", kind, check=0).stdout
    assert "secret" not in exported
    file = tmp_path / f"exported.{kind}"
    file.write_text(exported)
    assert results(shell.json("node", "import", str(file))) == ["unchanged"] * 3
    nodes = shell.json("node", "list")
    shell("node", "delete", *(node["uuid"] for node in nodes), "--yes", check=0)
    assert results(shell.json("node", "import", str(file))) == ["created"] * 3
    assert shell("node", "export", "-o", kind, check=0).stdout == exported
    assert shell("node", "export", "r1-u0[2-9]", "-o", kind, check=0).stdout.count("r1-u0") == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("f.csv", "", "the file is empty"),
        ("f.csv", "name,name\nn1,x\n", "column name occurs twice"),
        ("f.csv", "name,driver_info\nn1,x\n", "column driver_info needs a key, such as driver_info/KEY"),
        ("f.csv", 'name\n"n1\n', "invalid CSV"),
        ("f.csv", b"name\n\xff\n", "is not in UTF-8"),
        ("f.json", "[" * 100_000, "invalid JSON"),
        ("f.json", '{"chassis": []}', "only nodes can be imported, not chassis"),
        ("f.json", "3", "expected a list of nodes"),
        ("f.yaml", "a: [", "invalid YAML"),
        ("f.txt", "name\n", "the format of"),
    ],
)
def test_a_file_without_a_row_that_can_be_read_changes_nothing_and_is_explained(
    shell: Shell, tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert said in shell("node", "import", str(file), check=Exit.USAGE).stderr
    assert shell.json("node", "list") == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("f.csv", "owner,driver\nops,fake-hardware\n", "a name, a uuid or a MAC address is required"),
        ("f.csv", "name,driver,maintenance\nn1,fake-hardware,maybe\n", "'maybe': expected true or false"),
        ("f.csv", "name,driver,labels\nn1,fake-hardware,a b\n", "expected, for example, rack=r1,spare"),
        ("f.json", '[{"name": "n1", "driver": "fake-hardware", "extra": 3}]', "extra: expected an object"),
        ("f.json", '[{"name": "n1", "driver": "fake-hardware", "owner": []}]', "owner: expected a text"),
        ("f.json", '[{"name": "n1", "driver": "fake-hardware", "rack": 1}]', "unknown field 'rack'"),
        ("f.json", "[3]", "expected an object"),
        ("f.yaml", "- {driver: fake-hardware, ports: [{address: 11:22:33:44:55:10}]}\n", "in YAML, quote it"),
    ],
)
def test_a_row_that_is_wrong_is_left_out_and_explained(
    shell: Shell, tmp_path: Path, name: str, content: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    for options in (["--dry-run"], []):
        (refused,) = shell.json("node", "import", str(file), *options, check=Exit.FAILURE)
        assert (refused["result"], said in refused["detail"]) == ("failed", True), refused
    assert shell.json("node", "list") == []


def test_the_commands_of_the_page_work(shell: Shell, tmp_path: Path) -> None:
    blocks = page("docs/how-to/enroll-many-nodes.md").blocks
    (table,) = (block.text for block in blocks if block.language == "csv")
    (tmp_path / "rack1.csv").write_text(table.replace("redfish", "fake-hardware"))
    commands = [shlex.split(line) for block in blocks if block.language == "console" for line in typed(block)]
    (dry, real), exports = [words for words in commands if "import" in words], [w for w in commands if "export" in w]
    for words, result in ((dry, "would be created"), (real, "created"), (real, "unchanged")):
        given = [str(tmp_path / word) if word.endswith(".csv") else word for word in words[1:]]
        assert results(shell.json(*given)) == [result] * 2
    assert len(exports) == 2
    for words in exports:
        assert "rack1-u08" in shell(*words[1 : words.index(">")], check=0).stdout


def test_an_import_does_not_delete_the_node_to_which_the_same_import_has_just_added_a_port(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has seen the node without its ports, and adds them before the first one does."""
    file = tmp_path / "f.csv"
    file.write_text(f"name,driver,macs\nn1,fake-hardware,{MACS[0]} {MACS[1]}\n")
    create, second = write.create_port, []

    def late(api: Any, node: str, mac: str) -> Any:
        if not second:
            second.append(mac)
            second.append(shell.json("node", "import", str(file))[0]["result"])
        return create(api, node, mac)

    monkeypatch.setattr(write, "create_port", late)
    assert shell.json("node", "import", str(file))[0]["result"] == "created"
    assert second[1] == "changed"
    assert [port["address"] for port in shell.json("node", "show", "n1")["ports"]] == MACS[:2]


def test_an_import_whose_mac_address_another_node_gets_meanwhile_creates_nothing(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f.csv"
    file.write_text(f"name,driver,macs\nn1,fake-hardware,{MACS[0]}\n")
    create = write.create_port

    def late(api: Any, node: str, mac: str) -> Any:
        monkeypatch.setattr(write, "create_port", create)
        shell("node", "create", "other", "--driver", "fake-hardware", "--port", mac, check=0)
        return create(api, node, mac)

    monkeypatch.setattr(write, "create_port", late)
    (found,) = shell.json("node", "import", str(file), check=1)
    assert (found["result"], "in use by node other" in found["detail"]) == ("failed", True)
    assert [node["name"] for node in shell.json("node", "list")] == ["other"]
