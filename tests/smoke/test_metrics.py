"""The metrics port of worker processes."""

from __future__ import annotations

import base64
import http.client
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import bcrypt
import pytest

from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, tree, until


@pytest.mark.parametrize(
    ("policy", "statuses"),
    [
        ("", {"nobody": 200}),
        ('"ferroscope:metrics:get": "role:reader"\n', {"nobody": 401, "wrong": 401, "ann": 200, "bob": 403}),
    ],
    ids=["open", "closed"],
)
def test_the_metrics_port_of_a_worker_asks_the_policy(
    sqlite_url: str, tmp_path: Path, policy: str, statuses: dict[str, int]
) -> None:
    port, file = free_port(), tmp_path / "ferroscope.conf"
    hashed = {name: bcrypt.hashpw(name.encode(), bcrypt.gensalt(4)).decode() for name in ("ann", "bob")}
    if policy:  # an open one needs no users
        (tmp_path / "users").write_text(f"ann:{hashed['ann']}:reader\nbob:{hashed['bob']}:service\n")
    (tmp_path / "policy.yaml").write_text(policy)
    file.write_text(
        f"[metrics]\nport = {port}\n[database]\nconnection = {sqlite_url}\n[api]\nauth_strategy = http_basic\n"
        f"http_basic_auth_user_file = {tmp_path}/users\n"
        + (f"[oslo_policy]\npolicy_file = {tmp_path}/policy.yaml\n" if policy else "")
    )
    worker = Played("worker", tmp_path, [sys.executable, "-m", "ferroscope", "worker", "-c", str(file)])

    def status(user: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        password = {"wrong": "x"}.get(user, user)
        given = base64.b64encode(f"{'ann' if user == 'wrong' else user}:{password}".encode()).decode()
        connection.request("GET", "/metrics", headers={} if user == "nobody" else {"Authorization": f"Basic {given}"})
        answer = connection.getresponse()
        assert (b"ferroscope_" in answer.read()) is (answer.status == 200)
        connection.close()
        return answer.status

    try:
        worker.wait_ready()
        assert {user: status(user) for user in statuses} == statuses
    finally:
        worker.end()


def test_workers_of_one_host_serve_their_metrics_on_ports_side_by_side(sqlite_url: str, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "ferroscope.conf"
    file.write_text(f"[metrics]\nhost = 127.0.0.1\nport = {port}\n[database]\nconnection = {sqlite_url}\n")
    command = [sys.executable, "-m", "ferroscope", "worker", "-c", str(file), "--processes", "2"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)

    def ports() -> list[int]:
        # The next ones, unless somebody has them.
        return sorted(map(int, re.findall(r"serving metrics +host=\S+ port=(\d+)", (tmp_path / "log").read_text())))

    def scraped(at: int) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{at}/metrics", timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    try:
        assert until(lambda: len(ports()) == 2)
        first, second = ports()
        assert port <= first < second
        assert until(lambda: all("ferroscope_transitions_total" in scraped(one) for one in (first, second)))
        silent = [socket.create_connection(("127.0.0.1", first), 5) for _ in range(300)]
        assert "ferroscope_transitions_total" in scraped(first)
        for child in tree(process.pid)[1:]:
            assert len(list(Path(f"/proc/{child}/task").iterdir())) < 50
            assert len(list(Path(f"/proc/{child}/fd").iterdir())) < 100
        for one in silent:
            one.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
