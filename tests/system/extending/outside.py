"""Packages of somebody else: built from the text of the guides, installed, and run with the real service."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec

from ferroscope_sim import inventory as sim
from tests import ROOT
from tests.support.installation import Played, configuration
from tests.support.processes import PATIENCE, free_port, until

_SECONDS: Final = 90.0


def from_guide(page: str, module: str) -> dict[str, str]:
    """Return the files of the package that a guide builds: its first block of Python, and its pyproject.toml."""
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")

    def first(language: str) -> str:
        return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]

    return {module: first("python"), "pyproject.toml": first("toml")}


def install(files: dict[str, str], directory: Path) -> Path:
    """Build and install a package as its users would, but offline; return the place, which is no part of ours."""
    source, place = directory / "package", directory / "site"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_text(content, encoding="utf-8")
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(place), str(source)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


class Site:
    """``ferroscope all``, which finds what is installed in ``place``, with more configuration than every test has."""

    def __init__(self, directory: Path, place: Path, more: str = "", command: str = "all") -> None:
        self._port = free_port()
        self._place, self._directory = place, directory
        file = directory / "ferroscope.conf"
        file.write_text(configuration(directory, self._port, f"[worker]\nthreads = 2\n{more}"))
        self._service = Played("service", directory, self.command(command))

    def command(self, *words: str) -> list[str]:
        return ["env", f"PYTHONPATH={self._place}", sys.executable, "-m", "ferroscope", *words, "-c", "ferroscope.conf"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def wait_ready(self) -> None:
        self._service.wait_ready()

    def output(self) -> str:
        return self._service.output()

    def run(self, *words: str) -> str:
        """Run another command with the same configuration; return what it prints."""
        done = subprocess.run(self.command(*words), cwd=self._directory, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"X-OpenStack-Ironic-API-Version": "1.95", "Content-Type": "application/json"}
        url = f"{self.url}{path}"
        request = urllib.request.Request(url, data=content, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return msgspec.json.decode(answer.read() or b"null")

    def enroll(self, body: dict[str, Any], **node: Any) -> str:
        """Make a manageable node for the machine whose callback ``body`` is; return its UUID."""
        uuid: str = self.call("POST", "/v1/nodes", node)["uuid"]
        for nic in body["inventory"]["interfaces"]:
            self.call("POST", "/v1/ports", {"node_uuid": uuid, "address": nic["mac_address"]})
        self.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
        self.reach(uuid, "manageable")
        return uuid

    def inspect(self, uuid: str) -> None:
        self.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})

    def call_back(self, body: dict[str, Any]) -> None:
        self.call("POST", "/v1/continue_inspection", body)

    def reach(self, uuid: str, state: str) -> Any:
        """Return the node when it is in this provision state."""
        assert until(lambda: self.node(uuid)["provision_state"] == state, seconds=_SECONDS), self.node(uuid)
        return self.node(uuid)

    def node(self, uuid: str) -> Any:
        return self.call("GET", f"/v1/nodes/{uuid}")

    def close(self) -> None:
        self._service.end()


def machine(number: int) -> dict[str, Any]:
    """Return what the ramdisk of a simulated machine posts."""
    return msgspec.to_builtins(sim.document(number))
