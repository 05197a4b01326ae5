"""The page that leads to 200 servers: its commands, from the first server on, with a service and simulated machines.

What comes before is run by other tests: the package, the boot host and the ramdisk.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fast.docs.pages import page
from tests.fast.docs.test_commands import unparsed
from tests.support.follower import Follower, steps
from tests.support.processes import free_port

PAGE: Final = "docs/how-to/from-zero-to-200-servers.md"
BEGINNING: Final = "ferroscope status"
# Where on the page a server is that fails -> the machine that does that in the simulation.
BAD: Final = {
    "r5-u36": "sim-power-fail-1",
    "r5-u37": "sim-ramdisk-error-1",
    "r5-u39": "sim-timeout-1",
    "r5-u40": "sim-no-arch-1",
}
_CONFIGURATION: Final = """\
[api]
bare_metal_port = {port}
introspection_port = 0
[database]
connection = sqlite:///machines.db
[drivers]
enabled = sim,redfish
[inspector]
timeout = 30
"""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Follower]:
    bmcs = free_port()
    redfish = " -d redfish_username=inspector -d redfish_password=@bmc-password -d redfish_verify_ca=false"
    made = Follower(
        tmp_path,
        failing=("manage --state enroll", "inspect --state", "inspect --failed"),
        own={
            f"--driver redfish -d redfish_address=https://10.20.1.1{redfish}": (
                f"--driver sim -d sim_address=127.0.1.1:{bmcs} -d sim_node=sim-0001 -d sim_bmc_address=10.0.0.2"
            ),
            "-d redfish_address=https://10.20.1.7 -d redfish_password=@bmc-password": (
                f"-d sim_address=127.0.1.7:{bmcs}"
            ),
        },
    )
    made.bmcs = bmcs
    (tmp_path / "bmc-password").write_text("Canary-1\n")
    (tmp_path / "ferroscope.conf").write_text(_CONFIGURATION.format(port=made.port))
    special = " ".join(f"--special {name}" for name in BAD.values())
    made.follow("ferroscope all -c ferroscope.conf")
    made.follow(f"ferroscope sim --nodes 196 {special} --machines-file simulated.csv")
    yield made
    made.end()


def test_somebody_who_follows_the_page_has_195_servers_and_the_reasons_of_the_five(operator: Follower) -> None:
    commands = steps(PAGE)
    for command in commands[commands.index(BEGINNING) :]:
        operator.follow(command)
        if "> machines.csv" in command:
            _simulate(operator.directory)
    outputs = operator.outputs
    assert "1 finished" in outputs["ferroscope inspect r1-u01 --wait"]
    assert "199 created, 1 unchanged" in outputs["ferroscope node import machines.csv"]
    unreachable, failed = (
        outputs[f"ferroscope node list --{one} --fields name,last_error"] for one in ("state enroll", "failed")
    )
    assert _names(unreachable) == ["r1-u07"]
    assert _names(failed) == list(BAD)
    # The table of the page has the reasons that the service gives.
    results = outputs["ferroscope inspect --state manageable --wait --limit 50"]
    shown = re.findall(r"^\| (r5-u\d+) \| `([a-z-]+)` \|", page(PAGE).text, re.MULTILINE)
    assert sorted(shown) == sorted(re.findall(r"^(r5-u\d+) +failed +([a-z-]+)", results, re.MULTILINE))
    assert "195 finished, 4 failed" in results
    assert "1 finished" in outputs["ferroscope inspect r1-u07 --wait"]


def _simulate(directory: Path) -> None:
    """Put simulated machines in place of the servers in the file that the page has written, with the same names."""
    with (directory / "machines.csv").open(newline="") as file:
        servers = list(csv.DictReader(file))
    assert len({server["name"] for server in servers}) == len({server["bmc_address"] for server in servers}) == 200
    with (directory / "simulated.csv").open(newline="") as file:
        machines = {row["driver_info/sim_node"]: row for row in csv.DictReader(file)}
    good = (row for name, row in machines.items() if name not in BAD.values())
    rows = []
    for server in servers:
        row = machines[BAD[server["name"]]] if server["name"] in BAD else next(good)
        rows.append(row | {"name": server["name"]})
        if server["name"] == "r1-u07":  # mistyped
            rows[-1]["driver_info/sim_address"] = "127.0.1.7:639"
    with (directory / "machines.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _names(listed: str) -> list[str]:
    return re.findall(r"^(r\d-u\d+)", listed, re.MULTILINE)


def test_what_root_types_can_be_parsed() -> None:
    typed = [line.removeprefix("# ") for block in page(PAGE).blocks for line in block.text.splitlines()]
    commands = [line for line in typed if line.startswith("ferroscope ")]
    assert len(commands) > 5
    assert {line: unparsed(line) for line in commands} == dict.fromkeys(commands)
