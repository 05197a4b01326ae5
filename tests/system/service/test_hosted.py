"""The WSGI application in a server that is not ours: when it is opened and closed, forks, and what it cannot know."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from wsgiref.util import setup_testing_defaults

import pytest
from sqlalchemy import create_engine, text

from ferroscope.config.errors import StartError
from ferroscope.runtime import hosted
from ferroscope.runtime.hosted import Application
from tests import ROOT
from tests.support import databases
from tests.support.processes import PATIENCE, until

_FORKED: Final = """\
import os, sys
from tests.system.service.test_hosted import call, processes
from ferroscope.wsgi import application

def serve():
    return call(application, "/v1/nodes")[0] == 200

assert application.start() and serve()  # what a server must not do, but may
child = os.fork()
if child == 0:
    # Its own connections and its own member, at the first request.
    os._exit(0 if serve() and os.getpid() in processes(application) else 1)
assert os.waitpid(child, 0)[1] == 0
assert serve() and os.getpid() in processes(application)
"""


def call(
    app: Any, path: str, method: str = "GET", body: bytes = b"", **environ: Any
) -> tuple[int, Any, dict[str, str]]:
    """Return status, document and headers of one call."""
    answer: list[Any] = []
    given = {"PATH_INFO": path, "REQUEST_METHOD": method, "wsgi.input": io.BytesIO(body), "REMOTE_ADDR": "127.0.0.1"}
    environ = given | {"HTTP_HOST": "127.0.0.1", "HTTP_X_OPENSTACK_IRONIC_API_VERSION": "1.96"} | environ
    setup_testing_defaults(environ)
    data = b"".join(app(environ, lambda *line: answer.extend(line)))
    return int(answer[0].split()[0]), json.loads(data), dict(answer[1])


def processes(app: Any) -> list[int]:
    """Return the process of each member."""
    return [member["pid"] for member in call(app, "/v1/status")[1]["members"]]


@pytest.fixture(autouse=True)
def _logging_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted.log, "configure", lambda *_, **__: None)


@pytest.fixture
def config(tmp_path: Path, sqlite_url: str) -> Path:
    path = tmp_path / "ferroscope.conf"
    path.write_text(f"[database]\nconnection = {sqlite_url}\n[api]\nallow_anonymous = true\n")
    return path


@pytest.fixture
def app(config: Path) -> Iterator[Application]:
    made = Application([str(config)])
    yield made
    made.stop()


def test_the_first_request_opens_it_and_stop_leaves_nothing_behind(app: Application, sqlite_url: str) -> None:
    threads = set(threading.enumerate())
    engine = create_engine(sqlite_url)

    def members() -> int:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT COUNT(*) FROM members WHERE left_at IS NULL")).scalar_one())

    app.check()
    assert (members(), set(threading.enumerate()) - threads) == (0, set())
    status, _, headers = call(app, "/v1/nodes")
    assert (status, members()) == (200, 1)
    assert headers["X-Content-Type-Options"] == "nosniff"
    app.stop()
    assert (members(), set(threading.enumerate()) - threads) == (0, set())
    assert call(app, "/v1/nodes")[0] == 503
    assert app.start()
    assert call(app, "/v1/nodes")[0] == 200
    engine.dispose()


def test_requests_wait_for_nothing_while_it_cannot_be_opened(
    app: Application, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    away = file.rename(tmp_path / "away.db")
    status, document, headers = call(app, "/v1/nodes")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert str(file) not in str(document)
    away.rename(file)
    assert call(app, "/v1/nodes")[0] == 503  # too early to try again
    monkeypatch.setattr(hosted, "_RETRY_SECONDS", 0.0)
    assert until(lambda: call(app, "/v1/nodes")[0] == 200)


def test_it_is_opened_again_when_the_database_was_replaced(app: Application, sqlite_url: str, tmp_path: Path) -> None:
    assert app.start()
    member = call(app, "/v1/status")[1]["members"][0]["id"]
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    (tmp_path / "other").mkdir()
    Path(databases.sqlite(tmp_path / "other").removeprefix("sqlite:///")).rename(file)

    def others() -> bool:
        status, document, _ = call(app, "/v1/status")
        return status == 200 and document["members"] and member not in {one["id"] for one in document["members"]}

    assert until(others)


def test_without_authentication_it_serves_only_if_that_is_said(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("allow_anonymous = true", ""))
    made = Application([str(config)])
    with pytest.raises(StartError, match=r"\[api\] auth_strategy = noauth"):
        made.check()
    assert not made.start()
    assert call(made, "/v1/nodes")[0] == 503


def test_the_configuration_is_that_of_the_variable(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = config.with_name("more.conf")
    more.write_text("[api]\nallow_anonymous = perhaps\n")
    monkeypatch.setenv(hosted.VARIABLE, f"{config}:{more}")
    with pytest.raises(StartError, match="allow_anonymous"):
        Application().check()
    monkeypatch.setenv(hosted.VARIABLE, str(config))
    Application().check()


def test_the_web_server_says_which_api_it_serves_and_below_which_path(app: Application) -> None:
    place = {"SCRIPT_NAME": "/baremetal-introspection", "FERROSCOPE_API": "introspection", "SERVER_PORT": "443"}
    document = call(app, "/v1", **place)[1]
    assert document["resources"][0]["links"][0]["href"] == "http://127.0.0.1/baremetal-introspection/v1/introspection"
    assert call(app, "/v1", FERROSCOPE_API="bare-metal", SERVER_PORT="5050")[1]["id"] == "v1"
    assert "resources" in call(app, "/v1", SERVER_PORT="5050")[1]
    # A header has another name.
    assert call(app, "/v1", HTTP_FERROSCOPE_API="introspection", SERVER_PORT="6385")[1]["id"] == "v1"


def test_a_body_of_unknown_size_is_read_up_to_the_limit(app: Application) -> None:
    node = b'{"name": "chunked", "driver": "redfish"}'
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    assert call(app, "/v1/nodes", "POST", node, **chunked)[0] == 201
    assert call(app, "/v1/continue_inspection", "POST", b"x" * 3_000_000, **chunked)[0] == 413

    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError("the client has left")

    assert call(app, "/v1/nodes", "POST", **chunked | {"wsgi.input": Broken()})[0] == 400


def test_a_fork_shares_nothing_with_its_parent(postgresql_url: str, tmp_path: Path) -> None:
    config = tmp_path / "ferroscope.conf"
    config.write_text(f"[database]\nconnection = {postgresql_url}\n[api]\nallow_anonymous = true\n")
    command = [sys.executable, "-W", "ignore", "-c", _FORKED]
    environment = {"FERROSCOPE_CONFIG": str(config), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
