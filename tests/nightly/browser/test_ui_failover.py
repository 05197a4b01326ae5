"""The page of the service while a leader is killed: it shows the new holder and its epoch by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.browser import Chromium
from tests.support.installation import Played, configuration
from tests.support.processes import free_port, run, until

LEASE = "periodic/timeouts"
ROWS = """
[...document.querySelectorAll("section[aria-labelledby={section}] tbody tr")]
  .map(row => [...row.cells].map(cell => cell.textContent))
"""


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def table(browser: Chromium, section: str) -> dict[str, list[str]]:
    """Return the rows of a table of the page, by their first cell."""
    return {name: rest for name, *rest in browser.evaluate(ROWS.replace("{section}", section))}


def test_a_fail_over_is_seen_without_touching_the_page(ending: ExitStack, tmp_path: Path) -> None:
    port = free_port()
    # A worker that starts after the last heartbeat of a dead one replaces it, and the dead one is not shown.
    (tmp_path / "f.conf").write_text(
        configuration(tmp_path, port, "[drivers]\nenabled = sim\n[worker]\nmember_ttl = 2\n")
    )
    program = [sys.executable, "-m", "ferroscope"]

    run([*program, "db", "upgrade", "-c", "f.conf"], user=None, directory=tmp_path)

    def play(name: str, role: str) -> Played:
        played = Played(name, tmp_path, [*program, role, "-c", "f.conf"])
        ending.callback(played.end)
        played.wait_ready()
        return played

    play("api", "api")
    workers = [play(f"worker-{number}", "worker") for number in range(2)]
    browser = Chromium(tmp_path / "profile")
    ending.callback(browser.close)
    browser.shape(1280, 900)
    browser.go(f"http://127.0.0.1:{port}/ui/service")
    browser.evaluate("window.untouched = true")

    def leads() -> list[str] | None:
        """Return holder and epoch, once somebody leads and both workers are members."""
        alive = sum(row[0] == "worker" and row[1] == "alive" for row in table(browser, "members").values())
        found = table(browser, "leases").get(LEASE, ["free", "0"])
        return found if alive == 2 and found[0] != "free" else None

    assert until(lambda: leads() is not None)
    holder, epoch = leads() or ["", ""]
    leader = next(one for one in workers if holder.endswith(f":{one.pid}"))
    leader.kill()
    assert until(lambda: table(browser, "leases")[LEASE][0] not in (holder, "free"))
    successor, later = table(browser, "leases")[LEASE]
    (other,) = (one for one in workers if one is not leader)
    assert successor.endswith(f":{other.pid}")
    assert int(later) > int(epoch)
    assert until(lambda: table(browser, "members").get(holder, ["", ""])[1] == "dead")
    assert browser.evaluate("window.untouched") is True  # the same document: nobody has reloaded it
    assert browser.complaints == []
