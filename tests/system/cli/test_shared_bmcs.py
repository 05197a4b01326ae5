"""Two nodes at one BMC, on the command line, where both lines are named; and addresses that cannot be right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.system.cli.console import Shell

HEADER = "name,driver,bmc_address,bmc_username,bmc_password\n"


@pytest.fixture
def service(sqlite_url: str, listener: tuple[Any, str]) -> Iterator[Service]:
    served = Service(sqlite_url, drivers={"redfish": RedfishBmc(), "ipmi": IpmiBmc()})
    listener[0].app = served.app
    yield served
    listener[0].app = None
    served.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rack.csv"


def names(service: Service) -> list[str | None]:
    return sorted(node["name"] for node in service.bare_metal.get("/v1/nodes").json["nodes"])


@pytest.mark.parametrize("second", ["redfish,https://192.0.2.2:443", "ipmi,192.0.2.2"])
def test_a_bmc_that_is_in_two_lines_is_refused_with_both(
    shell: Shell, service: Service, file: Path, second: str
) -> None:
    file.write_text(f"{HEADER}a,redfish,https://192.0.2.2,u,p\nb,redfish,192.0.2.3,u,p\nc,{second},u,p\n")
    done = shell.json("node", "import", str(file), check=Exit.FAILURE)
    assert [row["result"] for row in done] == ["failed", "created", "failed"]
    assert "the BMC 192.0.2.2 is also in line 4" in done[0]["detail"]
    assert "the BMC 192.0.2.2 is also in line 2" in done[2]["detail"]
    assert names(service) == ["b"]
    allowed = shell.json("node", "import", str(file), "--allow-shared-bmc")
    assert [row["result"] for row in allowed] == ["created", "changed", "created"]


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_a_bmc_of_a_node_or_of_the_inbox_is_refused_with_it(
    shell: Shell, service: Service, file: Path, dry_run: list[str]
) -> None:
    shell("node", "create", "old", "--driver", "redfish", "-d", "redfish_address=https://192.0.2.2", check=0)
    found = {"driver": "redfish", "driver_info": {"redfish_address": "https://192.0.2.3"}}
    waiting = service.bare_metal.post("/v1/inbox", found).json["uuid"]
    file.write_text(f"{HEADER}a,ipmi,192.0.2.2,u,p\nb,redfish,192.0.2.3:443,u,p\nc,redfish,192.0.2.4,u,p\n")
    done = json.loads(shell("node", "import", str(file), *dry_run, "-o", "json", check=Exit.FAILURE).stdout)
    assert [one["result"] for one in done] == ["failed", "failed", "would be created" if dry_run else "created"]
    assert done[0]["where"] == "line 2"
    assert "the BMC 192.0.2.2 belongs to node old" in done[0]["detail"]
    assert f"is in the inbox as {waiting}" in done[1]["detail"]
    assert f"approve it: ferroscope node approve {waiting}, or add its uuid to the row" in done[1]["detail"]


def test_shared_bmcs_survive_export_and_import_in_any_order(shell: Shell, service: Service, file: Path) -> None:
    first = ["node", "create", "z-first", "--driver", "redfish", "-d", "redfish_address=192.0.2.2"]
    second = ["node", "create", "a-second", "--driver", "redfish", "-d", "redfish_address=192.0.2.2"]
    shell(*first, check=0)
    assert "z-first" in shell(*second, check=Exit.CONFLICT).output
    shell(*second, "--allow-shared-bmc", check=0)
    exported = shell("node", "export", check=0).stdout
    rows = exported.splitlines()
    file.write_text("\n".join([rows[0], *sorted(rows[1:])]) + "\n")
    shell("node", "delete", "z-first", "a-second", "--yes", check=0)
    assert [one["result"] for one in shell.json("node", "import", str(file))] == ["created"] * 2
    assert [one["result"] for one in shell.json("node", "import", str(file))] == ["unchanged"] * 2


@pytest.mark.parametrize(("hosts", "order"), [("2 1 3", 1), ("2 3 1", -1), ("4 1 2", 1)])
def test_a_corrected_file_moves_nodes_to_places_that_others_leave(
    shell: Shell, service: Service, file: Path, hosts: str, order: int
) -> None:
    def rows(numbers: list[str]) -> str:
        lines = [f"a{at},redfish,192.0.2.{host},u,p\n" for at, host in enumerate(numbers, 1)]
        return HEADER + "".join(lines[::order])

    file.write_text(rows(["1", "2", "3"]))
    shell("node", "import", str(file), check=0)
    file.write_text(rows(hosts.split()))
    would = shell.json("node", "import", str(file), "--dry-run")
    assert {one["result"] for one in would} <= {"would be changed", "unchanged"}
    done = shell.json("node", "import", str(file))
    assert {one["result"] for one in done} <= {"changed", "unchanged"}
    for at, host in enumerate(hosts.split(), 1):
        info = service.node(f"a{at}").driver_info
        assert info["redfish_address"] == f"192.0.2.{host}"
        assert "allow_shared_bmc" not in info
    assert {one["result"] for one in shell.json("node", "import", str(file))} == {"unchanged"}


@pytest.mark.parametrize(("refused", "results"), [(1, ["failed", "changed"]), (2, ["failed", "failed"])])
def test_a_node_that_cannot_move_says_whether_it_still_lets_others_use_its_bmc(
    shell: Shell, service: Service, file: Path, refused: int, results: list[str]
) -> None:
    file.write_text(f"{HEADER}a1,redfish,192.0.2.1,u,p\na2,redfish,192.0.2.2,u,p\n")
    shell("node", "import", str(file), check=0)
    rows = [f"a{at},redfish,192.0.2.{3 - at},u,{'' if at == refused else 'p'}\n" for at in (1, 2)]
    file.write_text(HEADER + "".join(rows))  # without its password, a node does not move
    done = json.loads(shell("node", "import", str(file), "-o", "json", check=Exit.FAILURE).stdout)
    assert [one["result"] for one in done] == results
    for at, one in enumerate(done, 1):
        is_sharing = "allow_shared_bmc" in service.node(f"a{at}").driver_info
        assert is_sharing == ("allow_shared_bmc stays" in one["detail"])


@pytest.mark.parametrize("row", ["a1,redfish,192.0.2.3,", "a1,redfish,192.0.2.300,", "a1,redfish,192.0.2.2,no label"])
def test_a_node_whose_row_is_wrong_stays_and_nobody_gets_its_bmc(
    shell: Shell, service: Service, file: Path, row: str
) -> None:
    header = "name,driver,driver_info/redfish_address,labels\n"
    file.write_text(header + "".join(f"a{number},redfish,192.0.2.{number},\n" for number in (1, 2, 3)))
    shell("node", "import", str(file), check=0)
    before = shell("node", "export", check=0).stdout
    file.write_text(f"{header}a2,redfish,192.0.2.1,\n{row}\n")
    for options in (["--dry-run"], []):
        done = shell.json("node", "import", str(file), *options, check=Exit.FAILURE)
        assert [row["result"] for row in done] == ["failed", "failed"]
        assert "belongs to node a1" in done[0]["detail"]
    assert shell("node", "export", check=0).stdout == before


def test_what_was_exported_can_be_imported_though_nodes_share_a_bmc_or_have_an_old_address(
    shell: Shell, service: Service, file: Path
) -> None:
    for number in (1, 2, 3):
        info = ["-d", f"redfish_address=192.0.2.{number}"]
        shell("node", "create", f"a{number}", "--driver", "redfish", *info, check=0)
    service.alter("a2", driver_info={"redfish_address": "https://192.0.2.1"})
    service.alter("a3", driver_info={"redfish_address": "10.40.0.041"})
    file.write_text(shell("node", "export", check=0).stdout)
    assert {one["result"] for one in shell.json("node", "import", str(file))} == {"unchanged"}


def test_set_refuses_the_place_of_another_node_unless_that_is_meant(shell: Shell, service: Service) -> None:
    for name, host in (("a", "192.0.2.2"), ("b", "192.0.2.3")):
        shell("node", "create", name, "--driver", "redfish", "-d", f"redfish_address={host}", check=0)
    change = ["node", "set", "b", "-d", "redfish_address=https://192.0.2.2:443"]
    assert "node a" in shell(*change, check=Exit.CONFLICT).output
    shell(*change, "--allow-shared-bmc", check=0)
    assert service.node("b").driver_info["allow_shared_bmc"] is True


def test_of_two_nodes_of_ironic_at_one_bmc_one_is_imported_and_the_other_is_named(
    shell: Shell, service: Service, tmp_path: Path
) -> None:
    for name, info in (
        ("a", {"redfish_address": "https://192.0.2.2:443"}),
        ("b", {"redfish_address": "192.0.2.2", "allow_shared_bmc": True}),
        ("c", {"redfish_address": "192.0.2.3"}),
    ):
        service.enrol(name=name, driver="redfish", driver_info=info)
    service.alter("b", driver_info={"redfish_address": "192.0.2.2"})
    service.alter("c", driver_info={"redfish_address": "10.40.0.041"})
    config = tmp_path / "f.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/new.db\n[drivers]\nenabled = redfish\n")
    shell("db", "upgrade", "-c", str(config), check=0)
    items = shell.json("import", "ironic", "-c", str(config), "--endpoint", shell.url)["items"]
    assert sorted(one["result"] for one in items if one["kind"] == "node") == ["imported", "skipped", "skipped"]
    skipped = " ".join(str(one["detail"]) for one in items if one["result"] == "skipped")
    assert "the BMC 192.0.2.2 belongs to node" in skipped
    assert "10.40.0.33" in skipped


def test_the_login_of_a_node_that_has_one_is_complete(shell: Shell, service: Service, file: Path) -> None:
    info = ["-d", "redfish_address=192.0.2.2", "-d", "redfish_username=u"]
    shell("node", "create", "a", "--driver", "redfish", *info, check=0)
    file.write_text("name,driver,bmc_password\na,redfish,p\n")
    assert [one["result"] for one in shell.json("node", "import", str(file))] == ["changed"]
