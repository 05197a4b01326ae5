"""What all tests share: private database servers, a new database for each test that asks for one, logs of failures.

The process that controls the test run (not the workers of xdist) starts the ``keeper`` of the servers; a server starts
when the first test needs it.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
import structlog
from xdist.scheduler import LoadFileScheduling

from ferroscope.db import store
from tests import ROOT
from tests.support import databases, forking, guard, statements
from tests.support.servers import KeeperProcess, Server
from tests.support.speed import slowness
from tests.support.stores import CompiledOnce

# The tests start Python more than a thousand times; without bytecode, each process compiles the service anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Seconds after which pytest-timeout ends a test that does not say for itself how long it may take.
os.environ.setdefault("PYTEST_TIMEOUT", f"{600 * slowness():.0f}")

_KEEPER = pytest.StashKey[KeeperProcess]()
_numbers = itertools.count(1)
_LOG_BYTES: Final = 6000

DATABASES = ("sqlite", "postgresql", "mariadb")


def pytest_configure(config: pytest.Config) -> None:
    # A run in the background may have been told to ignore SIGINT, and its children would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Rich draws each frame of a traceback with its variables, which takes a processor for half a second.
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    if not hasattr(config, "workerinput"):
        config.stash[_KEEPER] = KeeperProcess()
        if file := config.getoption("--statements"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _KEEPER in config.stash:
        config.stash[_KEEPER].close()


# Folders and files by how long they take, the longest first: a worker of xdist gets one file after the other, so that
# the last ones have to be short.
LONGEST: Final = (
    "system/cluster/test_shutdown.py",
    "system/cli/test_processes.py",
    "system/bmc/test_command_fence.py",
    "system/pxe/test_pxe_filter.py",
    "system/cluster",
    "system/pxe",
    "system/clients",
    "system/service/test_graceful_end.py",
    "system/examples",
    "system/sim",
    "system/extending",
    "system/service",
    "system",
    "smoke/test_growth.py",
    "smoke",
    "store/simulated",
    "api/test_openapi.py",
    "fast/hooks/test_hook_fuzz.py",
    "fast/docs",
    "store",
    "api",
)


# Files that share what takes long to start: they are one after the other, too.
TOGETHER: Final = tuple(
    f"tests/nightly/openstack/ironic/test_{name}" for name in ("attached", "clients", "import", "inspect", "kills")
)


class Scheduling(LoadFileScheduling):
    """Gives a worker of xdist one file after the other, or files that share something."""

    def _split_scope(self, nodeid: str) -> str:
        return "together" if nodeid.startswith(TOGETHER) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _place(item: pytest.Item) -> int:
    name = item.nodeid.removeprefix("tests/")
    return next((place for place, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--databases", help="Run what can run on several databases, and nothing else, on these, such as: mariadb"
    )
    parser.addoption("--statements", help="Write the SQL statements that the tests send to this file")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on several databases: in ``system``, on all of them, elsewhere, on the two that everybody has."""
    everywhere = metafunc.definition.path.is_relative_to(ROOT / "tests" / "system")
    given = metafunc.config.getoption("--databases")
    kinds = given.split(",") if given else DATABASES if everywhere else DATABASES[:2]
    if "database_kind" in metafunc.fixturenames:
        metafunc.parametrize("database_kind", kinds)
    if "server_kind" in metafunc.fixturenames:
        metafunc.parametrize("server_kind", [kind for kind in kinds if kind != "sqlite"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest; a slow machine has more time for what says how long it may take."""
    if config.getoption("--databases"):
        items[:] = [item for item in items if {"database_kind", "server_kind"} & set(_parameters(item))]
    items.sort(key=_place)
    for item in items:
        if (allowed := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(allowed.args[0] * slowness()), append=False)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    called = getattr(item, "callspec", None)
    return called.params if called else {}


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the ten thousand tests, which live as long as this process."""
    if hypothesis := sys.modules.get("hypothesis"):
        # Since Python 3.14, it would not see that what is frozen refers to its random numbers, and warn in a test.
        hypothesis.find(hypothesis.strategies.none(), lambda _: True)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    """Let processes of the service be forks, unless the test run says that each is started anew."""
    with nullcontext() if forking.ANEW in os.environ else forking.forking():
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Compile each SQL statement once for all stores of this process."""
    with mock.patch.object(store, "CompiledStatements", CompiledOnce):
        yield


@pytest.fixture(scope="session", autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Record which statements are sent, if the test run says so."""
    file = request.config.getoption("--statements")
    with statements.recording(Path(file)) if file else nullcontext():
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Undo what a service in this process has changed: blocked signals, which later processes inherit, and the log.

    Nothing starts a process but what is there for that.
    """
    blocked, logs = signal.pthread_sigmask(signal.SIG_BLOCK, ()), structlog.get_config()
    handlers, level = list(logging.root.handlers), logging.root.level
    with guard.no_processes() if guard.is_quick(item.path) else nullcontext():
        yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if structlog.get_config() != logs:
        structlog.configure(**logs)
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the logs of the test's processes if it fails."""
    outcome: Any = yield
    report = outcome.get_result()
    if not report.failed:
        return
    directories = {value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Path)}
    for log in sorted(path for directory in directories if directory.is_dir() for path in directory.rglob("*log")):
        if log.is_file() and (text := log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")):
            report.sections.append((f"end of {log}", text))


@pytest.fixture(scope="session")
def shared_postgresql() -> Server:
    """Return the PostgreSQL of the whole test run: do it no harm."""
    return Server("postgresql", "postgresql", volatile=True)


@pytest.fixture(scope="session")
def shared_mariadb() -> Server:
    """Return the MariaDB of the whole test run: do it no harm."""
    return Server("mariadb", "mariadb", volatile=True)


@pytest.fixture(scope="session")
def shared_swift() -> Server:
    """Return the Swift of the whole test run, which speaks S3 too: do it no harm."""
    return Server("swift", "swift")


@pytest.fixture(scope="session")
def shared_rabbitmq() -> Server:
    """Return the RabbitMQ of the whole test run, where tests use different exchanges and queues: do it no harm."""
    return Server("rabbitmq", "rabbitmq")


@pytest.fixture
def swift_server() -> Iterator[Server]:
    """Give a Swift of this test's own, to kill, freeze and start again."""
    yield from _own_server("swift")


@pytest.fixture
def postgresql_server() -> Iterator[Server]:
    """Give a PostgreSQL of this test's own, to stop, kill, freeze and restart."""
    yield from _own_server("postgresql")


@pytest.fixture
def mariadb_server() -> Iterator[Server]:
    """Give a MariaDB of this test's own, to stop, kill, freeze and restart."""
    yield from _own_server("mariadb")


@pytest.fixture
def postgresql_url(shared_postgresql: Server) -> Iterator[str]:
    """Give the URL of a new, migrated database on PostgreSQL."""
    with databases.fresh(shared_postgresql) as url:
        yield url


@pytest.fixture
def mariadb_url(shared_mariadb: Server) -> Iterator[str]:
    """Give the URL of a new, migrated database on MariaDB."""
    with databases.fresh(shared_mariadb) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return the URL of a new, migrated SQLite database."""
    return databases.sqlite(tmp_path)


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of a new, migrated database on each of the databases in turn."""
    url: str = request.getfixturevalue(f"{database_kind}_url")
    return url


@pytest.fixture
def server_url(server_kind: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of a new, migrated database on each of the database servers in turn."""
    url: str = request.getfixturevalue(f"{server_kind}_url")
    return url


@pytest.fixture
def empty_database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give the URL of a new database without any table, on each of the databases in turn."""
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    with databases.fresh(request.getfixturevalue(f"shared_{database_kind}"), migrated=False) as url:
        yield url


def _own_server(kind: str) -> Iterator[Server]:
    server = Server(kind, f"{kind}-{os.getpid()}-{next(_numbers)}")
    yield server
    server.discard()
