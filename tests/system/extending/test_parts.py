"""A part of somebody else comes in as those in contrib do: role, options, command, route and page, all at once."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.installation import Played
from tests.support.processes import PATIENCE, until
from tests.system.extending.outside import Site, install

_CONFIGURATION = "[drivers]\nenabled = fake-hardware\n[greeter]\nword = Ahoy\nperiod = 0.2\n"


def files_of(page: str) -> dict[str, str]:
    """Return the files of the package of a guide: each block of Python begins with its name."""
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    modules = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    return modules | {"pyproject.toml": re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return install(files_of("write-a-part.md"), tmp_path)


@pytest.fixture
def site(tmp_path: Path, place: Path) -> Iterator[Site]:
    running = Site(tmp_path, place, _CONFIGURATION)
    yield running
    running.close()


def test_role_options_command_route_and_page_come_from_one_package(site: Site, tmp_path: Path, place: Path) -> None:
    site.wait_ready()
    assert site.call("GET", "/v1/greetings/Ada") == {"text": "Ahoy, Ada"}
    described = site.call("GET", "/openapi.json")["paths"]["/v1/greetings/{name}"]["get"]
    assert (described["summary"], described["x-policy"]) == ("Greet somebody by name.", "public_api")
    with urllib.request.urlopen(f"{site.url}/greeter", timeout=PATIENCE) as page:
        assert page.read() == b"Ahoy"
    assert "Greet NAME." in _output(place, "node", "--help")
    assert _output(place, "node", "greet", "Ada", "--url", site.url) == "Ahoy, Ada\n"
    role = Played("greeter", tmp_path, site.command("greeter"))
    try:
        role.wait_ready()
        assert until(lambda: any("Ahoy, epoch" in text for text in _statuses(site)))
    finally:
        role.end()


def _output(place: Path, *words: str) -> str:
    command = [sys.executable, "-m", "ferroscope", *words]
    return subprocess.run(command, env={"PYTHONPATH": str(place)}, capture_output=True, text=True, check=True).stdout


def _statuses(site: Site) -> list[str]:
    members = site.call("GET", "/v1/status")["members"]
    return [str(one["status"]) for one in members if one["role"] == "greeter"]
