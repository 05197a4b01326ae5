"""The commands and files of the page on securing the service, for real: users, metrics, policies, quotas, reload."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast.docs.pages import Block, Page, page
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, until

PASSWORD = "pa55-of-alice"
_CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def section(title: str) -> Page:
    """Return a section of the page, up to the next heading."""
    source = page("docs/how-to/secure-the-service.md")
    without_code = _CODE.sub(lambda block: "." * len(block[0]), source.text)
    headings = list(_HEADING.finditer(without_code))
    (number,) = [number for number, found in enumerate(headings) if found[1] == title]
    end = headings[number + 1].start() if number + 1 < len(headings) else None
    return Page(source.name, source.text[headings[number].end() : end])


def commands(source: Page) -> list[tuple[str, str]]:
    """Return what is typed, by a user or by root, and the output that is shown below it."""
    found: list[tuple[str, str]] = []
    for block in source.blocks:
        for line in block.text.splitlines() if block.language == "console" else ():
            prompt, space, command = line.strip().partition(" ")
            if space and prompt in ("$", "#"):
                found.append((command, ""))
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]}{line.strip()}\n")
    return found


class Site:
    """A host on which somebody follows the page, in a directory instead of /etc/ferroscope."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, free_port()
        self.file = directory / "ferroscope.conf"
        self.file.write_text(f"[database]\nconnection = sqlite:///{directory}/f.db\n")
        self.api: Played | None = None

    def own(self, text: str) -> str:
        """Return a text of the page with the places of this site."""
        text = text.replace("/etc/ferroscope", str(self.directory)).replace("192.0.2.11:6385", f"127.0.0.1:{self.port}")
        return text.replace("192.0.2.11, localhost", "127.0.0.1").replace(
            "root:ferroscope", f"{os.getuid()}:{os.getgid()}"
        )

    def configure(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.language == "ini":
                more = f"bare_metal_port = {self.port}\nintrospection_port = 0\n" if "host =" in block.text else ""
                with self.file.open("a") as file:
                    file.write(self.own(block.text).replace("[api]\n", f"[api]\n{more}"))

    def run(self, command: str, given: str = "") -> tuple[int, str]:
        """Run a line of the page; return exit code and standard output."""
        words = shlex.split(self.own(command))
        if words[0] == "ferroscope":
            rest = words[1:] if "--file" in words else [*words[1:], "-c", str(self.file)]
            words = [sys.executable, "-m", "ferroscope", *rest]
        words = [f"alice:{PASSWORD}" if word == "alice" and words[0] == "curl" else word for word in words]
        if words[0] == "systemctl":
            assert self.api is not None
            words = ["kill", "-HUP", str(self.api.pid)]
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout

    def start(self) -> None:
        assert self.run("ferroscope db upgrade")[0] == 0
        self.api = Played("api", self.directory, [sys.executable, "-m", "ferroscope", "api", "-c", str(self.file)])
        self.api.wait_ready()

    def status(self, path: str, *login: str) -> str:
        url = f"http://127.0.0.1:{self.port}{path}"
        return self.run(shlex.join(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *login, url]))[1]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Give a site whose api runs as the first section says."""
    made = Site(tmp_path)
    users = section("Without OpenStack: a file of users")
    asked = []
    for command, output in commands(users):
        if command.startswith("curl"):
            asked.append((command, output))
            continue
        assert made.run(command, f"{PASSWORD}\n")[0] == 0, command
    assert (tmp_path / "htpasswd").stat().st_mode & 0o777 == 0o640
    made.configure(users.blocks)
    made.start()
    try:
        assert len(asked) == 2
        for command, output in asked:
            code, said = made.run(command)
            assert code == 0
            assert said.strip() == output.strip() if output else '"nodes": []' in said or '"nodes":[]' in said
        yield made
    finally:
        assert made.api is not None
        made.api.end()


def test_metrics_need_a_login_as_the_page_says_and_other_documents_none(site: Site) -> None:
    assert site.status("/metrics") == "200"
    (policy,) = [block.text for block in section("Metrics").blocks if block.language == "yaml"]
    (site.directory / "policy.yaml").write_text(policy)
    site.configure([block for block in section("Change who may do what").blocks if block.language == "ini"])
    assert site.api is not None
    site.api.stop()
    site.start()
    assert [site.status(path) for path in ("/metrics", "/", "/healthcheck")] == ["401", "200", "200"]
    assert site.status("/metrics", "-u", f"monitoring:{PASSWORD}") == "200"


def test_policies_are_checked_and_changed_with_a_reload(site: Site) -> None:
    source = section("Change who may do what")
    (policy,) = [block.text for block in source.blocks if block.language == "yaml"]
    (site.directory / "policy.yaml").write_text("")
    site.configure(source.blocks)
    site.configure(section("Quotas of lease names").blocks)
    assert site.api is not None
    site.api.stop()
    site.start()
    checks = [command for command, _ in commands(source)]
    assert len(checks) == 2
    assert {site.run(command)[1] for command in checks} == {"forbidden\n"}
    (site.directory / "policy.yaml").write_text(policy)
    for command, output in commands(source):
        assert site.run(command) == (0, output)
    ((reload, _),) = commands(section("Reload"))
    assert site.run(reload)[0] == 0
    assert until(lambda: site.api is not None and "reloaded" in site.api.output())
    assert site.api.alive
    assert site.api.process.send_signal(signal.SIGTERM) is None
    assert site.api.process.wait(PATIENCE) == 0
