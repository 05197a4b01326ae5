"""SIGHUP: every role reads its files again and goes on, alone and under a supervisor."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, tree, until

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
_SETTINGS = """
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
auth_strategy = http_basic
http_basic_auth_user_file = {directory}/users
[oslo_policy]
policy_file = {directory}/policy.yaml
[database]
connection = sqlite:///{directory}/ferroscope.db
[worker]
threads = 1
[pxe_filter]
network = reload-{port}
backends = dnsmasq
dhcp_hostsdir = {directory}/hosts
[log]
access = true
"""


class Site:
    """One configuration, on which our command runs."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, free_port()
        self.played: list[Played] = []
        (directory / "hosts").mkdir()
        self.write("policy.yaml", '"ferroscope:metrics:get": "role:admin"\n')
        self.write("users", f"alice:{HASH}:reader\n")
        self.write("f.conf", _SETTINGS.format(port=self.port, directory=directory))
        assert self.start("db", "upgrade").process.wait(PATIENCE) == 0

    def write(self, name: str, text: str) -> None:
        """Replace a file at once, as tools for configuration do."""
        (self.directory / "new").write_text(text)
        (self.directory / "new").rename(self.directory / name)

    def start(self, *words: str) -> Played:
        # Whatever those who run the tests ignore.
        command = ["env", "--default-signal=HUP", sys.executable, "-m", "ferroscope", *words, "-c", "f.conf"]
        self.played.append(Played(words[0], self.directory, command))
        return self.played[-1]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def status(self, path: str, connection: http.client.HTTPConnection | None = None, user: str = "alice") -> int:
        if connection is None:
            with contextlib.closing(self.connect()) as new:
                return self.status(path, new, user)
        credentials = base64.b64encode(f"{user}:secret".encode()).decode()
        connection.request("GET", path, headers={"Authorization": f"Basic {credentials}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path)
    yield one
    for played in one.played:
        if played.alive:
            played.end()


@pytest.mark.parametrize(
    ("words", "processes"),
    [
        (("all",), 1),
        (("worker",), 1),
        (("pxe-filter",), 1),
        (("api", "--processes", "2"), 3),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_no_role_ends_and_each_process_reads_again(site: Site, words: tuple[str, ...], processes: int) -> None:
    one = site.start(*words)
    assert until(lambda: one.output().count("ready ") >= max(1, processes - 1)), one.output()
    members = set(tree(one.pid))
    for number in (1, 2):
        site.write("f.conf", (site.directory / "f.conf").read_text() + "format = json\n")
        os.kill(one.pid, signal.SIGHUP)
        assert until(lambda: one.output().count("reloaded") == number * processes), one.output()  # noqa: B023
    assert one.output().count('"event": "reloaded"') == 2 * processes
    assert set(tree(one.pid)) >= members
    assert one.stop() == 0


def test_files_are_read_at_once_and_no_connection_is_lost(site: Site) -> None:
    one = site.start("api", "--processes", "2")
    assert until(lambda: one.output().count("ready ") == 2)
    connection, slow = site.connect(), site.connect()
    assert site.status("/v1/nodes", connection) == 200
    assert site.status("/metrics", connection) == 403
    slow.putrequest("POST", "/v1/nodes")
    slow.putheader("Content-Length", "2")
    slow.putheader("Authorization", "Basic " + base64.b64encode(b"alice:secret").decode())
    slow.endheaders()
    site.write("users", f"alice:{HASH}:admin\nbob:{HASH}:reader\n")
    site.write("policy.yaml", '"ferroscope:metrics:get": "role:reader"\n"public_api": "role:admin"\n')
    site.write("f.conf", (site.directory / "f.conf").read_text() + "levels = ferroscope.access:warning\n")
    os.kill(one.pid, signal.SIGHUP)
    assert until(lambda: one.output().count("reloaded") == 3)
    lines = one.output().count("path=/v1/nodes")
    assert site.status("/metrics", connection) == 200
    assert {site.status("/metrics", user="bob") for _ in range(8)} == {200}
    assert {site.status("/healthcheck", user="bob") for _ in range(8)} == {403}
    assert site.status("/v1/nodes", connection) == 200
    assert one.output().count("path=/v1/nodes") == lines
    slow.send(b"{}")
    assert slow.getresponse().status in (400, 403)  # with the role that alice had when it began, or has now
    connection.close()
    slow.close()


def test_what_is_broken_changes_nothing_and_other_options_are_named(site: Site) -> None:
    one = site.start("api")
    one.wait_ready()
    assert site.status("/metrics") == 403
    site.write("users", "alice\n")
    site.write("policy.yaml", '"baremetal:node:get": "role:a or or"\n')
    site.write("f.conf", (site.directory / "f.conf").read_text() + "level = loud\n")
    os.kill(one.pid, signal.SIGHUP)
    assert until(lambda: "reloaded" in one.output())
    assert one.output().count("stays in use") == 3
    assert (site.status("/v1/nodes"), site.status("/metrics")) == (200, 403)
    site.write(
        "f.conf", _SETTINGS.format(port=site.port, directory=site.directory).replace("threads = 1", "threads = 2")
    )
    os.kill(one.pid, signal.SIGHUP)
    assert until(lambda: "sections=['worker']" in one.output())
    assert one.stop() == 0
