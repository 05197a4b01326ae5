"""What deploy/ ships is accepted by the programs that it is for, and says what the code does."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from bench.service import executable
from ferroscope.config.options import ApiSettings, Settings
from ferroscope.http_server.server import HttpServer, bind
from tests import ROOT
from tests.support.cluster.balancer import SHIPPED, Balancer, program
from tests.support.processes import PATIENCE, free_port, spawn, until
from tests.support.units import DAEMONS, TEMPLATES, UNITS, parsed

DEPLOY = ROOT / "deploy"


def test_haproxy_takes_the_shipped_configuration() -> None:
    checked = subprocess.run([program(), "-c", "-f", str(SHIPPED)], capture_output=True, text=True, check=False)
    said = checked.stdout + checked.stderr
    assert checked.returncode == 0, said
    assert "WARNING" not in said
    assert "ALERT" not in said


def test_haproxy_tells_who_called_and_gives_one_address_a_part_of_its_connections(tmp_path: Path) -> None:
    seen: list[str] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        seen.append(environ.get("HTTP_X_FORWARDED_FOR", ""))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"ok"]

    listeners = [bind("127.0.0.1", 0) for _ in range(2)]
    server = HttpServer(app, ApiSettings(trusted_proxies=("127.0.0.1",)), listeners)
    server.start()
    ports = [listener.getsockname()[1] for listener in listeners]
    balancer = Balancer(tmp_path, [(ports[0], ports[1])])
    greedy: list[socket.socket] = []

    def get(source: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", balancer.bare_metal, 5, source_address=(source, 0))
        try:
            connection.request("GET", "/mine", headers={"X-Forwarded-For": "192.0.2.99"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    try:
        balancer.wait_listens()
        assert until(lambda: get("127.0.0.1") == 200)
        assert until(lambda: get("127.0.0.3") == 200)
        assert "127.0.0.3" in seen
        assert "192.0.2.99" not in "".join(seen)
        for _ in range(600):
            with contextlib.suppress(ConnectionError):
                greedy.append(socket.create_connection(("127.0.0.1", balancer.bare_metal), 5))
        assert until(lambda: get("127.0.0.1") == 0)
        assert get("127.0.0.3") == 200
    finally:
        for one in greedy:
            one.close()
        balancer.end()
        server.stop(1)


def test_a_server_that_fails_its_health_check_gets_requests_only_if_all_fail(tmp_path: Path) -> None:
    """HAProxy answers 503 by itself as soon as no server is up, although servers that are only slow would answer."""
    unhealthy: set[str] = set()

    def app(name: str) -> Callable[..., Any]:
        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
            failing = environ["PATH_INFO"] == "/healthcheck" and name in unhealthy
            start_response("503 Service Unavailable" if failing else "200 OK", [("Content-Type", "text/plain")])
            return [name.encode()]

        return answer

    names = ("api1", "api2")
    listeners = {name: [bind("127.0.0.1", 0) for _ in range(2)] for name in names}
    servers = [HttpServer(app(name), ApiSettings(), listeners[name]) for name in names]
    ports = [[listener.getsockname()[1] for listener in listeners[name]] for name in names]
    balancer = Balancer(tmp_path, [(bare_metal, introspection) for bare_metal, introspection in ports])

    http = urllib3.PoolManager(retries=False, timeout=PATIENCE)

    def answered() -> set[str]:
        """Return what answered ten requests: names of servers, or HAProxy's own status."""
        answers = [http.request("GET", f"{balancer.url}/v1") for _ in range(10)]
        return {one.data.decode() if one.status == 200 else str(one.status) for one in answers}

    try:
        for server in servers:
            server.start()
        balancer.wait_listens()
        assert until(lambda: answered() == set(names))
        unhealthy.add("api1")
        assert until(lambda: answered() == {"api2"})
        unhealthy.add("api2")
        assert until(lambda: "Running on backup" in balancer.log.read_text())
        assert until(lambda: answered() == set(names))
        unhealthy.remove("api1")
        assert until(lambda: answered() == {"api1"})
    finally:
        balancer.end()
        for server in servers:
            server.stop(1)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_shipped_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/ferroscope/bin/ferroscope", executable()))
    # The units of this host, which systemd reads too, are not the subject.
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    about_it = [line for line in verified.stderr.splitlines() if unit.name in line]
    assert (verified.returncode, about_it) == (0, [])


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda unit: unit.stem)
def test_a_unit_for_one_network_of_several_is_the_plain_one_with_files_of_its_own(template: Path) -> None:
    plain = template.with_name(template.name.replace("@", "")).read_text()
    for one, several in (
        ("ferroscope-pxe-filter.service", "ferroscope-pxe-filter@%i.service"),
        ("ferroscope-pxe-closed.service", "ferroscope-pxe-closed@%i.service"),
        ("Ferroscope PXE filter", "Ferroscope PXE filter of %i"),
        ("pxe-closed.nft", "pxe-closed-%i.nft"),
        ("ferroscope pxe-filter", "ferroscope pxe-filter -c /etc/ferroscope/%i.conf"),
    ):
        plain = plain.replace(one, several)
    assert _sections(template.read_text()) == _sections(plain)


def _sections(unit: str) -> list[str]:
    """Return the lines from the first section on: before that is how it is installed."""
    return unit[unit.index("[Unit]") :].splitlines()


@pytest.mark.parametrize(("content", "loaded"), [(None, False), ("", False), ("table inet t\n", True)])
def test_a_closed_ruleset_that_would_close_nothing_keeps_dnsmasq_from_starting(
    tmp_path: Path, content: str | None, loaded: bool
) -> None:
    path = tmp_path / "closed.nft"
    if content is not None:
        path.write_text(content)
    unit = DEPLOY / "systemd" / "ferroscope-pxe-closed.service"
    (assertion,) = [line for line in unit.read_text().splitlines() if line.startswith("Assert")]
    asked = assertion.replace("/etc/ferroscope/pxe-closed.nft", str(path))
    done = subprocess.run(["systemd-analyze", "condition", asked], capture_output=True, check=False)
    assert (done.returncode == 0) == loaded


def test_a_watchdog_is_not_killed_with_the_pxe_filter_that_it_watches() -> None:
    assert "KillMode=process" in (DEPLOY / "systemd" / "ferroscope-pxe-filter.service").read_text().splitlines()


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.stem)
def test_a_unit_restarts_what_ended_and_waits_for_a_graceful_end(unit: Path) -> None:
    service = parsed(unit)["Service"]
    role = unit.stem.removeprefix("ferroscope-")
    assert service["ExecStart"] == f"/opt/ferroscope/bin/ferroscope {role}"
    assert (service["Type"], service["Restart"], service["NoNewPrivileges"]) == ("notify", "always", "yes")
    assert int(service["LimitNOFILE"]) > Settings().api.max_connections
    # The supervisor gives its children five seconds more.
    assert int(service["TimeoutStopSec"]) > Settings().worker.graceful_timeout + 5 + 5


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_confined(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=17", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # exceeded: exit code 1
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", [*DAEMONS, *TEMPLATES], ids=lambda unit: unit.stem)
def test_a_unit_limits_memory_and_has_a_watchdog(unit: Path) -> None:
    service = parsed(unit)["Service"]
    if "pxe-closed" in unit.stem:
        assert service["Type"] == "oneshot"
    else:
        assert service["MemoryMax"].endswith(("M", "G"))
        assert int(service["WatchdogSec"]) >= 30


@contextmanager
def _supervised(
    words: list[str], directory: Path, database_url: str, **variables: str
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Start a role as systemd does; give the socket on which systemd listens, and the main process."""
    config = directory / "ferroscope.conf"
    ports = f"[api]\nhost = 127.0.0.1\nbare_metal_port = {free_port()}\nintrospection_port = {free_port()}\n"
    config.write_text(f"{ports}[database]\nconnection = {database_url}\n")
    path = str(directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.settimeout(30)
        environment = [f"{name}={value}" for name, value in {"NOTIFY_SOCKET": path, **variables}.items()]
        command = ["env", *environment, executable(), words[0], "-c", str(config), *words[1:]]
        process = spawn(command, user=None, directory=directory, log=directory / "log")
        try:
            yield manager, process
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("words", [["all"], ["api", "--processes", "2"]])
def test_the_main_process_tells_systemd_that_it_works_until_it_hangs(
    words: list[str], tmp_path: Path, sqlite_url: str
) -> None:
    with _supervised(words, tmp_path, sqlite_url, WATCHDOG_USEC="400000") as (manager, process):
        assert _heard(manager) == ("READY=1", process.pid)
        for _ in range(4):
            assert _heard(manager) == ("WATCHDOG=1", process.pid)
        process.send_signal(signal.SIGSTOP)
        assert until(lambda: not _is_heard(manager))
        process.send_signal(signal.SIGCONT)
        manager.settimeout(30)
        assert _heard(manager) == ("WATCHDOG=1", process.pid)


@pytest.mark.parametrize("words", [["worker"], ["api", "--processes", "2"]])
def test_the_main_process_tells_systemd_when_it_is_ready_and_when_it_stops(
    words: list[str], tmp_path: Path, sqlite_url: str
) -> None:
    with _supervised(words, tmp_path, sqlite_url) as (manager, process):
        assert _heard(manager) == ("READY=1", process.pid)
        assert until(lambda: "ready" in (tmp_path / "log").read_text())
        process.send_signal(signal.SIGTERM)
        assert _heard(manager) == ("STOPPING=1", process.pid)
        assert process.wait(PATIENCE) == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody else has said anything
            manager.recv(100)


def _is_heard(manager: socket.socket) -> bool:
    """Whether anything comes within three times the interval."""
    manager.settimeout(0.6)
    try:
        return bool(manager.recv(100))
    except TimeoutError:
        return False


def _heard(manager: socket.socket) -> tuple[str, int]:
    data, ancillary, _, _ = manager.recvmsg(100, socket.CMSG_SPACE(12))
    pid = int.from_bytes(ancillary[0][2][:4], "little")
    assert os.path.exists(f"/proc/{pid}")  # noqa: PTH110
    return data.decode(), pid
