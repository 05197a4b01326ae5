"""A site's asset list with every mistake at once: what is right is done, what is wrong has its line and its reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from ferroscope.bmc.drivers import DriverOptions, Limits
from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.cli.exits import Exit
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from tests.api.service import Service
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors import ALL
from tests.support.vendors.service import serving
from tests.system.cli.console import Shell

HEADER: Final = "name;driver;bmc_address;bmc_username;bmc_password;macs;;labels/rack;driver_info/redfish_system_id;;;;"
ROWS: Final = 200
OLD: Final = "52:54:00:ff:00:01"
SPELLINGS: Final = (
    "{0}:{1}:{2}:{3}:{4}:{5}", "{0}-{1}-{2}-{3}-{4}-{5}", "{0}{1}.{2}{3}.{4}{5}", "{0}{1}{2}-{3}{4}{5}",
    "{0}{1}-{2}{3}-{4}{5}", "{0}{1}{2}{3}{4}{5}", " {0} {1} {2} {3} {4} {5}",
)  # fmt: skip
# Number of the row -> cells that are wrong, and why.
WRONG: Final[dict[int, tuple[dict[str, str], str]]] = {
    10: ({"bmc_address": "010.040.000.041"}, "leading zeros"),
    11: ({"bmc_address": "10.40.34"}, "10.40.34"),
    12: ({"bmc_address": "10.40.0.300"}, "10.40.0.300"),
    13: ({"bmc_address": "https://fd40::10"}, "fd40::10"),
    14: ({"bmc_address": "https://"}, "https://"),
    20: ({}, "is also in line 23"),
    21: ({"driver": "redfish", "bmc_address": "https://10.40.0.120:443/"}, "is also in line 22"),
    24: ({}, "the name r0-u24 is also in line 27"),
    25: ({"name": "r0-u24"}, "the name r0-u24 is also in line 26"),
    26: ({"macs": "52:54:00:00:00:18"}, "the MAC address 52:54:00:00:00:18 is also in line 26"),
    30: ({"macs": "52:54:00:00:1e"}, "invalid MAC address '52:54:00:00:1e'"),
    31: ({"macs": "5.254E+11"}, "a spreadsheet has made a number of it"),
    32: ({"macs": "52:54:00:00:00:ZZ"}, "invalid MAC address '52:54:00:00:00:ZZ'"),
    40: ({"driver": "idrac"}, "did you mean redfish?"),
    41: ({"driver": "iLO5"}, "did you mean redfish?"),
    42: ({"driver": "ipmitool"}, "did you mean ipmi?"),
    43: ({"driver": ""}, "need a driver"),
    50: ({"name": "rack 1, unit 7"}, "invalid name"),
    51: ({"name": "", "macs": ""}, "is required to identify the node"),
    60: ({"bmc_username": ""}, "user"),
    61: ({"bmc_address": ""}, "address"),
    70: ({"labels/rack": "A1;B2", "driver_info/redfish_system_id": "1"}, "quote cells with ';'"),
    71: ({"": "A1"}, "is in column 7, which has no name"),
    80: ({"macs": OLD}, f"MAC address {OLD} is that of node old"),
}
REFUSED: Final = 81
ANSWER: Final = range(90, 90 + len(ALL))


@pytest.fixture
def bmc() -> Iterator[RedfishBmc]:
    with closing(RedfishBmc(DriverOptions(command_timeout=60.0, limits=Limits(http_passwords=True)))) as driver:
        yield driver


@pytest.fixture
def service(sqlite_url: str, listener: tuple[Any, str], bmc: RedfishBmc) -> Iterator[Service]:
    served = Service(sqlite_url, drivers={"redfish": bmc, "ipmi": IpmiBmc(), "fake-hardware": FakeBmc()})
    listener[0].app = served.app
    yield served
    listener[0].app = None
    served.close()


@pytest.fixture
def answering() -> Iterator[dict[int, dict[str, str]]]:
    """Give what the rows of BMCs that answer say: one of each vendor's, and one with another password."""
    with ExitStack() as stack:
        found = {}
        for number, personality in zip(ANSWER, ALL, strict=True):
            running = stack.enter_context(serving(personality))
            found[number] = {
                "driver": "redfish",
                "bmc_address": running.url,
                "bmc_username": USER,
                "bmc_password": PASSWORD,
                "driver_info/redfish_system_id": running.system if personality.other_systems else "",
            }
        refusing = stack.enter_context(serving(ALL[0]))
        found[REFUSED] = found[ANSWER[0]] | {"bmc_address": refusing.url, "bmc_password": "of the last owner"}
        yield found


def cells(number: int) -> dict[str, str]:
    """Return a row as people write it, each a little differently."""
    octets = [f"{octet:02x}" for octet in (0x52, 0x54, 0, 0, number >> 8, number & 255)]
    driver = ("redfish", "ipmi")[number % 2]
    address = ("10.40.{}.{}", "https://10.40.{}.{}")[driver == "redfish"].format(number // 100, number % 100 + 100)
    mac = SPELLINGS[number % len(SPELLINGS)].format(*octets)
    return {
        "name": f"r{number // 40}-u{number:02}",
        "driver": driver,
        "bmc_address": address,
        "bmc_username": "root",
        "bmc_password": "calvin",
        "macs": mac.upper() if number % 3 else mac,
        "": "",
        "labels/rack": f"A{number // 40}",
        "driver_info/redfish_system_id": "",
    }


def written(rows: dict[int, dict[str, str]]) -> bytes:
    """Return the file as spreadsheets save it; row n is line n + 2."""
    lines = [HEADER]
    for number in range(ROWS):
        padding = (" ", "\t", "\N{NO-BREAK SPACE}", "")[number % 4]
        lines.append(";".join(f"{cell}{padding}" for cell in rows[number].values()) + ";" * (number % 5))
    return "\r\n".join(["\ufeff" + lines[0], *lines[1:], ";;;;;", "", ""]).encode()


def test_what_is_right_is_done_and_what_is_wrong_has_its_line_and_reason(
    shell: Shell, service: Service, bmc: RedfishBmc, answering: dict[int, dict[str, str]], tmp_path: Path
) -> None:
    shell("node", "create", "old", "--driver", "fake-hardware", "--port", OLD, check=0)
    file = tmp_path / "site.csv"
    right = {number: cells(number) | answering.get(number, {}) for number in range(ROWS)}
    file.write_bytes(written({number: row | WRONG.get(number, ({}, ""))[0] for number, row in right.items()}))

    planned = shell.json("node", "import", str(file), "--dry-run", check=Exit.FAILURE)
    assert [node["name"] for node in shell.json("node", "list")] == ["old"]
    done = shell.json("node", "import", str(file), check=Exit.FAILURE)
    assert [row["where"] for row in done] == [f"line {number + 2}" for number in range(ROWS)]
    assert {number for number, row in enumerate(done) if row["result"] != "created"} == set(WRONG)
    assert {number for number, (_, why) in WRONG.items() if why not in done[number]["detail"]} == set()
    real = [(row["where"], row["result"].replace("created", "would be created"), row["detail"]) for row in done]
    assert [(row["where"], row["result"], row["detail"]) for row in planned] == real
    ports = {port["address"] for port in service.bare_metal.get("/v1/ports").json["ports"]}
    assert ports == {f"52:54:00:00:00:{number:02x}" for number in range(ROWS) if number not in WRONG} | {OLD}

    for number in ANSWER:
        bmc.get_power(service.node(done[number]["uuid"]))
    with pytest.raises(BmcError) as caught:
        bmc.get_power(service.node(done[REFUSED]["uuid"]))
    assert caught.value.reason == Reason.BMC_CREDENTIALS

    file.write_bytes(written(right))
    corrected = shell.json("node", "import", str(file))
    assert {number for number, row in enumerate(corrected) if row["result"] == "created"} == set(WRONG)
    assert {row["result"] for row in corrected} == {"created", "unchanged"}
