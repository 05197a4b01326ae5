"""The service for the command line: its application on a real port, and whole processes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import HttpServer, bind
from ferroscope_client.client import Client
from ferroscope_client.errors import Failure
from ferroscope_sim.model import FleetSettings
from ferroscope_sim.run import FleetThread
from tests.api.service import Service
from tests.support.processes import PATIENCE, free_port, until
from tests.system.cli.console import Shell
from tests.system.cli.scripted import Answer, ScriptedServer, Serve

_CONFIGURATION = """\
[api]
host = 127.0.0.1
bare_metal_port = {api}
introspection_port = {introspection}

[database]
connection = sqlite:///{directory}/ferroscope.db

[inspector]
timeout = 60

[drivers]
enabled = sim,fake-hardware
command_timeout = 2
"""


class Switch:
    """The one listening server of a test process, behind which each test puts an application of its own."""

    def __init__(self) -> None:
        self.app: Callable[..., Iterable[bytes]] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        assert self.app is not None
        return self.app(environ, start_response)


@pytest.fixture(scope="package")
def listener() -> Iterator[tuple[Switch, str]]:
    """Give the server and its address."""
    switch = Switch()
    settings = ApiSettings()
    socket = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    server = HttpServer(switch, settings, [socket])
    server.start()
    yield switch, url
    server.stop(5)


@pytest.fixture
def service(sqlite_url: str, listener: tuple[Switch, str]) -> Iterator[Service]:
    """Give a service on a new database, whose worker is the test."""
    served = Service(sqlite_url)
    listener[0].app = served.app
    yield served
    listener[0].app = None
    served.close()


@pytest.fixture
def api(service: Service, listener: tuple[Switch, str]) -> Client:
    """Return the command line's client of the service."""
    return Client(listener[1])


@pytest.fixture
def shell(service: Service, listener: tuple[Switch, str]) -> Shell:
    """Return the command line as a script uses it, with the service's address in the environment."""
    return Shell(listener[1])


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Give what starts a server with a script."""
    with ExitStack() as stack:

        def start(*answers: Answer, **options: Any) -> ScriptedServer:
            server = ScriptedServer(*answers, **options)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Give the command line beside a real ``ferroscope all``; tests must use nodes of their own."""
    directory = tmp_path_factory.mktemp("service")
    port = free_port()
    file = directory / "ferroscope.conf"
    file.write_text(_CONFIGURATION.format(api=port, introspection=free_port(), directory=directory))
    process = _ferroscope(directory, "all", "-c", str(file))
    shell = Shell(f"http://127.0.0.1:{port}")
    try:
        assert until(lambda: process.poll() is not None or _answers(shell.url))
        assert process.poll() is None, (directory / "all.log").read_text()
        yield shell
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, (directory / "all.log").read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def fleet(running: Shell, request: pytest.FixtureRequest) -> Iterator[FleetThread]:
    """Give a fleet of three good machines, and the special ones that the test is parametrized with."""
    special = tuple(getattr(request, "param", ()))
    settings = FleetSettings(
        nodes=3,
        special=special,
        callback_url=f"{running.url}/v1/continue_inspection",
        boot_delay=0.3,
        boot_jitter=0.1,
        time_scale=0.1,
    )
    with FleetThread(settings) as started:
        yield started
    nodes = running.json("node", "list", "--driver", "sim")
    for name in [node["name"] for node in nodes if node["provision_state"] in ("inspecting", "inspect wait")]:
        running("node", "abort", name, "--wait")
    if nodes:
        running("node", "delete", *[node["name"] for node in nodes], check=0)


def _ferroscope(directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ferroscope", *arguments]
    with (directory / f"{arguments[0]}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _answers(url: str) -> bool:
    try:
        Client(url).get("/v1/")
    except Failure:
        return False
    return True
