"""TLS of whole processes: a start that is refused, metrics of a worker, renewal under a supervisor, and the doctor."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.certificates import Authority, Pair
from tests.support.installation import configuration
from tests.support.processes import PATIENCE, free_port, until


class Site:
    """Runs our command on one configuration."""

    def __init__(self, directory: Path, authority: Authority, pair: Pair) -> None:
        self.authority = authority
        self.pair = pair
        self._directory = directory
        self.port, self.metrics = free_port(), free_port()
        tls = f"[api]\ntls_certificate_file = {pair.certificate}\ntls_key_file = {pair.key}\n"
        more = f"{tls}[metrics]\nport = {self.metrics}\n"
        (directory / "f.conf").write_text(configuration(directory, self.port, more))
        self.body = ""
        self._started: list[subprocess.Popen[bytes]] = []
        self.run("db", "upgrade")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ferroscope", *words, "-c", "f.conf"]
        return subprocess.run(
            command, cwd=self._directory, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ferroscope", *words, "-c", "f.conf"]
        with (self._directory / "log").open("wb") as log:
            self._started.append(subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log))
        return self._started[-1]

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text()

    def get(self, port: int, path: str, host: str = "localhost") -> int:
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
        try:
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            self.body = answer.read().decode()
        except ConnectionError:
            return 0
        finally:
            connection.close()
        return answer.status

    def close(self) -> None:
        for process in self._started:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


Make = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Make]:
    """Give a function that returns a site whose certificate ends so long after now."""
    made: list[Site] = []

    def make(**more: object) -> Site:
        authority = Authority(tmp_path)
        made.append(Site(tmp_path, authority, authority.issue("server", **more)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_metrics_of_a_worker_are_served_over_tls_and_to_its_own_names_only(site: Make) -> None:
    one = site()
    one.start("worker")
    assert until(lambda: "serving metrics" in one.log)
    assert one.get(one.metrics, "/metrics") == 200
    (expiry,) = re.findall(r"^ferroscope_certificate_expiry_timestamp_seconds{.*} (.+)$", one.body, re.MULTILINE)
    certificate = x509.load_pem_x509_certificate(Path(one.pair.certificate).read_bytes())
    assert float(expiry) == certificate.not_valid_after_utc.timestamp()
    assert one.get(one.metrics, "/metrics", host="evil.example") == 421


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_doctor_finds_a_key_that_everyone_can_read(site: Make, mode: int) -> None:
    one = site()
    one.pair.key.chmod(mode)
    checks = {row["code"]: row for row in json.loads(one.run("doctor", "-o", "json").stdout)["checks"]}
    assert checks["certificate"]["verdict"] == "ok"
    assert ("key-file" in checks) is (mode == 0o644)
