"""``ferroscope bmc set-password``: stages, where the password comes from, what is reported, and how to go on."""

from __future__ import annotations

import json
import shlex
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope_client.cli.main import main
from ferroscope_client.core.passwords import PasswordProgress
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.api.working import worker
from tests.fast.cli.running import NO_CREDENTIALS
from tests.support import examples
from tests.support.processes import PATIENCE, until
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors import service as vendors
from tests.support.vendors.openbmc import ALL as OPENBMC
from tests.support.vendors.personality import Accounts
from tests.system.bmc.conftest import LAX
from tests.system.bmc.vendors.conftest import Unhurried
from tests.system.cli.conftest import Switch
from tests.system.cli.console import Shell

NEW = "new-Pass.word_12"


class Site:
    """A service whose worker works, and the BMCs of its machines."""

    def __init__(self, served: Service, bmc: RedfishBmc, url: str) -> None:
        self.service, self.shell = served, Shell(url)
        self.bmcs: list[vendors.Service] = []
        served.store.write(lambda tx: tx.members.beat(examples.member("w"), 600.0))
        self.worker = worker(served, {"redfish": bmc})

    def work(self) -> None:
        """Work until the service is stopped."""
        while not self.service.stop.is_set():
            self.worker.step()

    def add(self, name: str, bmc: vendors.Service, **info: Any) -> None:
        given = {"redfish_address": bmc.url, "redfish_username": USER, "redfish_password": PASSWORD} | info
        self.service.enrol(name=name, driver="redfish", driver_info=given)
        self.bmcs.append(bmc)

    def run(self, *words: str, check: int = 0, given: str = NEW + "\n", file: bool = True) -> str:
        """Run the command with the new password on standard input; return what it prints."""
        arguments = ["bmc", "set-password", *words, *(["--from-file", "-"] if file else [])]
        environment = {**NO_CREDENTIALS, "FERROSCOPE_URL": self.shell.url}
        done = CliRunner().invoke(main, arguments, env=environment, input=given)
        assert done.exit_code == check, done.output
        assert not any(secret in done.output for secret in (NEW, PASSWORD))
        return done.output

    def results(self, *words: str, check: int = 0, **more: Any) -> dict[str, str]:
        """Run the command; return the results by the name of the machine."""
        printed = self.run(*words, "-o", "json", check=check, **more)
        return {one["node"]: one["result"] for one in json.loads(printed[printed.index("[\n") :])}

    @property
    def passwords(self) -> list[str]:
        return [bmc.logins.passwords[USER] for bmc in self.bmcs]


@pytest.fixture
def site(sqlite_url: str, listener: tuple[Switch, str]) -> Iterator[Site]:
    """Give a service without machines."""
    options = DriverOptions(command_timeout=60.0, inventory_timeout=60.0, limits=LAX, stop=Unhurried())
    with closing(RedfishBmc(options)) as bmc:
        served = Service(sqlite_url, drivers={"redfish": bmc})
        listener[0].app = served.app
        found = Site(served, bmc, listener[1])
        thread = threading.Thread(target=found.work)
        thread.start()
        yield found
        served.stop.set()
        thread.join(PATIENCE)
        listener[0].app = None
        served.close()


@pytest.fixture
def rack(site: Site, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Give four machines; what is ``wrong`` with which of them is the parameter."""
    wrong: dict[int, Accounts] = getattr(request, "param", {})
    with ExitStack() as running:
        for number in range(1, 5):
            personality = msgspec.structs.replace(OPENBMC[0], accounts=wrong.get(number, Accounts()))
            site.add(f"r1-u{number}", running.enter_context(vendors.serving(personality)))
        yield site


def test_all_are_changed_after_the_first_one(rack: Site) -> None:
    assert rack.results("r1-*") == {f"r1-u{number}": PasswordProgress.CHANGED for number in range(1, 5)}
    assert rack.passwords == [NEW] * 4
    first = rack.bmcs[0].asked
    assert all(len(bmc.asked) for bmc in rack.bmcs)
    assert [one.method for one in first].count("PATCH") == 1


@pytest.mark.parametrize("rack", [{1: Accounts(most=12)}], indirect=True)
def test_no_other_machine_is_touched_if_the_first_one_fails(rack: Site) -> None:
    said = rack.run("r1-*", check=Exit.FAILURE)
    assert rack.passwords == [PASSWORD] * 4
    assert [bmc.asked for bmc in rack.bmcs[1:]] == [[]] * 3
    assert "12 characters" in said
    assert "3 not started, 1 unchanged" in said


@pytest.mark.parametrize("rack", [{2: Accounts(most=12), 3: Accounts(most=12)}], indirect=True)
def test_no_more_are_begun_after_as_many_failures_and_the_rest_is_continued(rack: Site) -> None:
    said = rack.run("r1-*", "--limit", "1", check=Exit.FAILURE)
    assert rack.passwords == [NEW, PASSWORD, PASSWORD, PASSWORD]
    (line,) = (line for line in said.splitlines() if line.startswith("to continue"))
    again = shlex.split(line.partition(": ")[2])
    assert again[:4] == ["ferroscope", "bmc", "set-password", "r1-*"]
    rack.bmcs[1].logins._accounts = rack.bmcs[2].logins._accounts = Accounts()
    for bmc in rack.bmcs[1:3]:
        bmc.personality = msgspec.structs.replace(bmc.personality, accounts=Accounts())
    results = rack.results(*again[3:])
    assert results == {"r1-u1": "skipped"} | {f"r1-u{number}": PasswordProgress.CHANGED for number in (2, 3, 4)}
    assert rack.passwords == [NEW] * 4
    assert rack.bmcs[0].logins.changes == 1


@pytest.mark.parametrize("rack", [{number: Accounts(most=12) for number in (2, 3)}], indirect=True)
def test_failures_may_be_allowed(rack: Site) -> None:
    results = rack.results("r1-*", "--max-failures", "9", "--stage", "25%", check=Exit.FAILURE)
    assert [results[name] for name in sorted(results)] == [
        PasswordProgress.CHANGED, PasswordProgress.UNCHANGED, PasswordProgress.UNCHANGED, PasswordProgress.CHANGED,
    ]  # fmt: skip


def test_a_random_password_for_each_is_saved_before_it_is_sent(rack: Site, tmp_path: Path) -> None:
    file = tmp_path / "saved.csv"
    rack.run("r1-*", "--generate", "--save", str(file), file=False)
    noted = [line.split(",") for line in file.read_text().splitlines()]
    assert noted[0] == ["node", "uuid", "password"]
    assert [row[2] for row in noted[1:]] == rack.passwords
    assert len(set(rack.passwords)) == 4
    assert {len(password) for password in rack.passwords} == {16}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    rack.run("r1-*", "--generate", "--save", str(file), file=False, check=Exit.USAGE)
    assert [row[2] for row in noted[1:]] == rack.passwords


def test_a_name_that_no_node_has_is_nothing_to_continue_with(rack: Site) -> None:
    said = rack.run("nobody-*", "--generate", file=False, check=3)
    assert "no matching nodes: nobody-*" in said
    assert "to continue" not in said


def test_a_dry_run_changes_nothing_and_asks_for_no_password(rack: Site) -> None:
    said = rack.run("r1-*", "--dry-run", file=False, given="")
    assert "would change the password of 4 machines" in said
    assert rack.passwords == [PASSWORD] * 4


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--generate", "--resume"],
        ["--save", "x"],
        ["--reference", "not-a-Reference1"],
        ["--unless-changed-since", "yesterday", "--generate"],
        ["--stage", "150%", "--generate"],
        ["--generate", "--length", "7"],
    ],
)
def test_what_is_no_use_is_refused_before_anything_is_done(rack: Site, words: list[str]) -> None:
    rack.run("r1-*", *words, file=False, given="", check=Exit.USAGE)
    assert rack.passwords == [PASSWORD] * 4


@pytest.mark.parametrize("given", ["short", "secret://file/new"])
def test_a_text_that_is_no_password_is_refused_and_not_repeated(rack: Site, given: str) -> None:
    said = rack.run("r1-*", given=given, check=Exit.USAGE)
    assert given not in said
    assert rack.passwords == [PASSWORD] * 4


def test_machines_behind_one_bmc_are_one_change(site: Site) -> None:
    with vendors.serving(OPENBMC[0]) as bmc:
        for number in range(1, 4):
            site.add(f"blade-{number}", bmc, redfish_system_id=bmc.system)
        results = site.results("blade-*", "--stage", "1", "--limit", "1")
        assert results == {f"blade-{number}": PasswordProgress.CHANGED for number in range(1, 4)}
        assert (bmc.logins.changes, bmc.logins.rejected) == (1, 0)
        for number in range(1, 4):
            info = site.service.node(f"blade-{number}").driver_info
            assert (info["redfish_password"], "redfish_pending_password" in info) == (NEW, False)


def test_a_change_that_is_unclear_is_resumed(rack: Site) -> None:
    bmc = rack.bmcs[0]
    bmc.logins.passwords[USER] = "set-by-Hand.1"
    said = rack.run("r1-u1", "--wait", check=Exit.FAILURE)
    assert "r1-u1 --resume" in said
    assert rack.results("r1-u1", check=Exit.CONFLICT) == {"r1-u1": "failed"}
    bmc.logins.passwords[USER] = PASSWORD
    assert rack.results("r1-u1", "--resume", file=False) == {"r1-u1": PasswordProgress.CHANGED}
    assert bmc.logins.passwords[USER] == NEW


def test_one_machine_is_not_waited_for_unless_asked(rack: Site) -> None:
    assert rack.results("r1-u1") == {"r1-u1": "requested"}
    assert until(lambda: rack.bmcs[0].logins.passwords[USER] == NEW)


def test_a_machine_that_is_being_inspected_is_skipped_or_refused(rack: Site) -> None:
    rack.service.alter("r1-u1", state="waiting", provision_state="inspect wait")
    assert rack.results("r1-u1", check=Exit.CONFLICT) == {"r1-u1": "failed"}
    assert set(rack.results("r1-*")) == {"r1-u2", "r1-u3", "r1-u4"}
    assert rack.passwords == [PASSWORD, NEW, NEW, NEW]
