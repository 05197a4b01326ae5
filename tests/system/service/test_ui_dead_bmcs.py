"""Machines whose BMC is dead are enrolled on the page, with a real worker: each row says why, and nothing stays."""

from __future__ import annotations

import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.browser import Chromium
from tests.support.installation import Played
from tests.support.processes import free_port, run, until

CONFIGURATION = """
[api]
bare_metal_port = {port}
introspection_port = 0
[database]
connection = sqlite:///{directory}/ferroscope.db
[drivers]
bmc_networks = 127.0.0.0/8
enabled = redfish,ipmi
command_timeout = 1
command_tries = 1
[worker]
retry_delay = 0.1
get_timeout = 0.2
max_attempts = 2
"""
ROWS = """
[...document.querySelectorAll("main tbody tr")].map(row => [...row.cells].map(cell => cell.textContent))
"""


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def silent_server(ending: ExitStack) -> int:
    """Accept connections and never say a word; return the port."""
    listener = ending.enter_context(socket.create_server(("127.0.0.2", 0), backlog=64))
    taken: list[socket.socket] = []

    def take() -> None:
        try:
            while True:
                taken.append(listener.accept()[0])
        except OSError:
            return

    threading.Thread(target=take, daemon=True).start()
    ending.callback(lambda: [one.close() for one in taken])
    return int(listener.getsockname()[1])


def test_a_machine_with_a_dead_bmc_is_not_kept_and_its_row_says_why(ending: ExitStack, tmp_path: Path) -> None:
    port, closed = free_port(), free_port()
    mute = ending.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    mute.bind(("127.0.0.4", 0))
    (tmp_path / "f.conf").write_text(CONFIGURATION.format(port=port, directory=tmp_path))
    program = [sys.executable, "-m", "ferroscope"]
    run([*program, "db", "upgrade", "-c", "f.conf"], user=None, directory=tmp_path)
    for role in ("api", "worker"):
        played = Played(role, tmp_path, [*program, role, "-c", "f.conf"])
        ending.callback(played.end)
        played.wait_ready()
    browser = Chromium(tmp_path / "profile")
    ending.callback(browser.close)
    sheet = tmp_path / "rack.csv"
    sheet.write_text(
        "name,driver,bmc_address,bmc_username,bmc_password,driver_info/ipmi_port\n"
        f"silent,redfish,https://127.0.0.2:{silent_server(ending)},operator,pw-of-the-bmc,\n"
        f"closed,redfish,https://127.0.0.3:{closed},operator,pw-of-the-bmc,\n"
        f"mute,ipmi,127.0.0.4,operator,pw-of-the-bmc,{mute.getsockname()[1]}\n"
    )
    browser.shape(1280, 900)
    browser.go(f"http://127.0.0.1:{port}/ui/enroll")
    browser.choose_file("#file", sheet)
    browser.click("main form button.primary")
    browser.click("main form button.primary")
    assert "3 BMCs are being tried" in browser.text()
    assert until(lambda: "3 not created" in browser.text()), browser.text()
    rows = {name: (result, detail) for _, name, result, detail in browser.evaluate(ROWS)}
    said = {"closed": "Connection refused", "mute": "timed out", "silent": "timed out"}
    assert {name: (result, said[name] in detail) for name, (result, detail) in rows.items()} == dict.fromkeys(
        said, ("not created", True)
    )
    assert all("127.0.0." in detail for _, detail in rows.values())
    reasons = {"closed": "bmc-connection-refused", "mute": "bmc-unreachable", "silent": "bmc-unreachable"}
    assert all(reasons[name] in detail for name, (_, detail) in rows.items())
    assert "pw-of-the-bmc" not in browser.evaluate("document.documentElement.outerHTML")
    with closing(sqlite3.connect(tmp_path / "ferroscope.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM nodes").fetchone() == (0,)
    assert browser.complaints == []
