"""Changing the passwords of many BMCs while workers and the api are killed: no password that nobody knows is left.

The command line, the api and the worker are processes; the BMCs are real HTTP services, which kill the worker at each
step of a change: before it is carried out, and before it is answered.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from ferroscope.config.options import DatabaseSettings, SecretSettings, Settings
from ferroscope.core import bmc_password
from ferroscope.core.bmc_password import PasswordProgress
from ferroscope.core.model import Node
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import KeyRing, new_key
from ferroscope.secrets.references import SecretReader
from tests.smoke.test_roles import Roles, roles
from tests.support.installation import Played
from tests.support.processes import PATIENCE
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.lenovo import XCC
from tests.support.vendors.logins import SESSIONS
from tests.support.vendors.openbmc import ALL as OPENBMC
from tests.support.vendors.service import Service, serving

_MORE: Final = """
[drivers]
enabled = redfish
allow_http_passwords = true
bmc_networks = 127.0.0.0/8
inventory_timeout = 10
[secrets]
key_file = {key}
"""

# The requests of a change, and how often each has come before: a login, the account, the change, the proof.
_LOGIN, _ACCOUNTS = ("POST", SESSIONS), ("GET", "/redfish/v1/AccountService/Accounts")
_CHANGE = ("PATCH", f"{_ACCOUNTS[1]}/{USER}")
STEPS: Final[dict[str, tuple[tuple[str, str], int, bool]]] = {
    "the login arrives": (_LOGIN, 1, False),
    "the login is answered": (_LOGIN, 1, True),
    "the accounts are read": (_ACCOUNTS, 1, False),
    "the change arrives": (_CHANGE, 1, False),
    "the change is answered": (_CHANGE, 1, True),
    "the proof arrives": (_LOGIN, 2, False),
    "the proof is answered": (_LOGIN, 2, True),
}


class Site:
    """An installation with a BMC for each step, and two that nothing happens to."""

    def __init__(self, directory: Path, url: str, key: Path, installed: Roles) -> None:
        self.directory, self.installed = directory, installed
        database = DatabaseSettings(connection=url)
        settings = Settings(database=database, secrets=SecretSettings(key_file=str(key)))
        self._stop = threading.Event()
        self._backend = open_backend(settings, clock=SystemClock(), stop=self._stop, listen=False)
        self._secrets = SecretReader(KeyRing(key))
        self.api, self.worker = installed.start("api", "api"), installed.start("worker", "worker")
        self.bmcs: dict[str, Service] = {}
        self.kills: list[str] = []
        self.unknown: list[str] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        self._stop.set()
        self._backend.close()

    def add(self, name: str, bmc: Service) -> None:
        """Enroll the machine of a BMC."""
        info = {"redfish_address": bmc.url, "redfish_username": USER, "redfish_password": PASSWORD}
        self.installed.api.call("POST", "/v1/nodes", {"name": name, "driver": "redfish", "driver_info": info})
        self.bmcs[name] = bmc

    def kill(self, process: Played, why: str) -> None:
        """Kill a process, look whether all passwords are known, and start it again."""
        with self._lock:
            process.kill()
            self.kills.append(why)
            self.unknown += [name for name in self.bmcs if not self.knows(name)]
            process.start()

    def node(self, name: str) -> Node:
        return self._backend.store.read(lambda tx: tx.nodes.get(name))

    def knows(self, name: str) -> bool:
        """Whether the password of the BMC is stored, as the present one or the new one."""
        info = self._secrets.driver_info(self.node(name))
        stored = {info["redfish_password"], *(info[field] for field in bmc_password.pending_fields(info))}
        return self.bmcs[name].logins.passwords[USER] in stored

    def command(self, *words: str) -> list[dict[str, Any]]:
        """Run the command, and return its results; processes may be killed meanwhile."""
        command = [sys.executable, "-m", "ferroscope", "bmc", "set-password", *words, "-o", "json"]
        done = subprocess.run(
            [*command, "--url", self.installed.api.url, "--timeout", "240"],
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE,
            check=False,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture
def site(tmp_path: Path, postgresql_url: str) -> Iterator[Site]:
    key = tmp_path / "keys"
    key.write_text(new_key())
    key.chmod(0o600)
    with roles(tmp_path, postgresql_url, _MORE.format(key=key)) as installed:
        found = Site(tmp_path, postgresql_url, key, installed)
        try:
            for process in (found.api, found.worker):
                process.wait_ready()
            yield found
        finally:
            found.close()


def at(step: str, act: Callable[[], None]) -> tuple[Callable[[str, str], None], Callable[[str, str], None]]:
    """Return what a BMC calls when a request arrives and when it is answered, which acts once, at this step."""
    wanted, number, answered = STEPS[step]
    seen = {False: 0, True: 0}

    def look(method: str, path: str, *, after: bool) -> None:
        if (method, path) != wanted:
            return
        seen[after] += 1
        if after is answered and seen[after] == number:
            act()

    return lambda *call: look(*call, after=False), lambda *call: look(*call, after=True)


def test_no_password_is_lost_though_the_worker_is_killed_at_each_step(site: Site) -> None:
    with ExitStack() as running:
        for number, step in enumerate(STEPS):
            bmc = running.enter_context(serving(OPENBMC[0]))
            bmc.arrives, bmc.leaves = at(step, lambda step=step: site.kill(site.worker, step))  # type: ignore[misc]
            site.add(f"killed-{number}", bmc)
        for number in range(2):
            bmc = running.enter_context(serving(XCC))
            site.add(f"left-alone-{number}", bmc)
        bmc.leaves = at("the login is answered", lambda: site.kill(site.api, "api"))[1]
        saved = site.directory / "passwords.csv"
        words = ("--generate", "--save", str(saved), "--stage", "0", "--limit", "4", "--max-failures", "99")
        results = site.command("*-*", *words)
        assert len(results) == len(site.bmcs)
        # Who was killed too often is left with both passwords, and resumed by its operator.
        unclear = [one["node"] for one in results if one["result"] == PasswordProgress.UNCLEAR]
        if unclear:
            results = [one for one in results if one["node"] not in unclear] + site.command(*unclear, "--resume")
        assert {one["result"] for one in results} == {PasswordProgress.CHANGED}, results
        assert sorted(site.kills) == sorted([*STEPS, "api"])
        assert site.unknown == []
        assert [name for name in site.bmcs if not site.knows(name)] == []
        noted = dict(line.split(",")[::2] for line in saved.read_text().splitlines()[1:])
        for name, bmc in site.bmcs.items():
            assert bmc.logins.passwords[USER] == noted[name] != PASSWORD
            assert bmc_password.pending_fields(site.node(name).driver_info) == []
        assert saved.stat().st_mode & 0o777 == 0o600
        said = "".join(process.log.read_text() for process in (site.api, site.worker))
        assert not any(secret in said for secret in (PASSWORD, *noted.values()))
