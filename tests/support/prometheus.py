"""A private Prometheus on loopback, and promtool: Debian's package, with its data in a directory of the test."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.daemons import MissingServerError
from tests.support.installation import Installation
from tests.support.processes import PATIENCE, free_port


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; an error if it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise MissingServerError(f"{name} not found: install the Debian package prometheus, or run: make test")
    return found


def promtool(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    return subprocess.run([program("promtool"), *words], cwd=cwd, capture_output=True, text=True, check=False)


class Prometheus(Installation):
    """Scrapes ``targets`` (host:port), and evaluates ``rules`` every second; ``jobs`` are further scrape configs."""

    def __init__(
        self, directory: Path, targets: Sequence[str], rules: Sequence[Path], jobs: Sequence[Any] = ()
    ) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(file) for file in rules],
            "scrape_configs": [{"job_name": "ferroscope", "static_configs": [{"targets": list(targets)}]}, *jobs],
        }

    def _start(self) -> None:
        file = self.directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(self._configuration))
        options = {
            "config.file": file,
            "storage.tsdb.path": self.directory / "data",
            "web.listen-address": f"127.0.0.1:{self.port}",
        }
        command = [program("prometheus"), *(f"--{name}={value}" for name, value in options.items())]
        self.play("prometheus", command).wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API; ``ValueError`` with what it says is wrong with a query."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as exc:
            raise ValueError(json.load(exc)["error"]) from None

    def query(self, expression: str) -> list[Any]:
        """Return the samples that an expression has now."""
        found: list[Any] = self.get("query", query=expression)["result"]
        return found

    def firing(self, state: str = "firing") -> set[str]:
        """Return the names of the alerts in this state."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == state}
