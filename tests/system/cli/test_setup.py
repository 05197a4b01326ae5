"""``ferroscope setup``: on a terminal, by options, and what it refuses; its configurations start a real service."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.service import executable
from ferroscope.config.load import load
from ferroscope_client.errors import Exit
from tests.support import databases
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import Server
from tests.system.cli.test_top import Terminal, environment

_PASSWORD = "Canary-of-the-admin"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ferroscope.conf"


@pytest.fixture
def run(path: Path) -> Run:
    """Return a function that runs it without a terminal."""

    def call(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        # The default database of root is the system's.
        database = [] if "--database" in words else ["--database", f"sqlite:///{path.parent}/machines.db"]
        command = [executable(), "setup", "-c", str(path), *database, *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment(""))

    return call


def _moved(path: Path) -> None:
    """Let the listeners of a configuration use free ports."""
    text = path.read_text().replace("[api]\n", f"[api]\nbare_metal_port = {free_port()}\n")
    path.write_text(text.replace("[api]\n", f"[api]\nintrospection_port = {free_port()}\n"))


def test_five_answers_on_a_terminal_make_a_configuration_that_works(path: Path) -> None:
    terminal = Terminal("", "setup", "-c", str(path), columns=120)
    try:
        for question, answer in (
            ("Database URL", f"sqlite:///{path.parent}/machines.db"),
            ("Listen on", "127.0.0.2"),
            ("Login", "http_basic"),
            ("first administrator", "alice"),
            ("Password of alice", _PASSWORD),
            ("Repeat for confirmation", _PASSWORD),
            ("Boot", "virtual-media"),
            ("URL", ""),
            ("ISO image", ""),
        ):
            assert terminal.writes(f"{question}"), terminal.text
            terminal.text = ""
            terminal.type(f"{answer}\n")
        assert terminal.writes("Next:"), terminal.text
        assert terminal.process.wait(PATIENCE) in (0, 1), terminal.text
        assert _PASSWORD not in terminal.text
    finally:
        terminal.close()
    settings = load([str(path)])
    assert settings.api.host == ("127.0.0.2",)
    assert settings.inspector.callback_endpoint_override == "http://127.0.0.2:6385"
    assert settings.inspector.ramdisk_iso == "/var/lib/ferroscope-tftp/ipa.iso"
    _moved(path)
    service = Played("all", path.parent, [executable(), "all", "-c", str(path)])
    try:
        service.wait_ready()
    finally:
        service.end()
    assert (path.parent / "machines.db").exists()


def test_without_a_terminal_the_defaults_are_a_configuration_that_doctor_approves(path: Path, run: Run) -> None:
    done = run()
    assert done.returncode in (Exit.OK, Exit.FAILURE), done.stderr  # a port of this host may be taken
    assert path.stat().st_mode & 0o077 in (0, 0o040)
    settings = load([str(path)])
    assert (settings.api.host, settings.api.auth_strategy) == (("localhost",), "noauth")
    _moved(path)
    doctor = subprocess.run([executable(), "doctor", "-c", str(path)], capture_output=True, text=True, check=False)
    assert doctor.returncode == Exit.OK, doctor.stdout


@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost, ::1"])
def test_this_host_has_more_names_than_one(path: Path, run: Run, listen: str) -> None:
    done = run("--listen", listen, "--database", f"sqlite:///{path.parent}/machines.db", "--boot", "network")
    assert load([str(path)]).api.auth_strategy == "noauth", done.stderr
    steps = done.stdout.partition("Next:")[2]
    assert f"ferroscope all -c {path}" in steps
    assert "ferroscope worker" not in steps
    assert "set-up-a-boot-host" in steps
    assert "/ui\n" in steps


def test_on_a_database_server_it_creates_the_tables(path: Path, run: Run, shared_postgresql: Server) -> None:
    with databases.fresh(shared_postgresql, migrated=False) as url:
        done = run("--database", url, "--boot", "network", "--machine-url", "http://192.0.2.1:6385/")
        assert "ferroscope worker -c" in done.stdout, done.stderr
        settings = load([str(path)])
        assert settings.boot.callback_url == "http://192.0.2.1:6385/v1/continue_inspection"
        current = subprocess.run(
            [executable(), "db", "current", "-c", str(path)], capture_output=True, text=True, check=False
        )
        assert current.returncode == Exit.OK, current.stderr


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        (["--database", "oracle://db/x"], "", Exit.USAGE),
        (["--database", "@/nonexistent"], "", Exit.USAGE),
        (["--database", f"postgresql://nobody:{_PASSWORD}@127.0.0.1:1/x"], "", Exit.FAILURE),
        (["--listen", "192.0.2.1", "--login", "noauth"], "", Exit.USAGE),
        (["--login", "http_basic"], "short\n", Exit.USAGE),
        (["--login", "http_basic"], "", Exit.USAGE),
        (["--login", "http_basic", "--user", "a:b"], f"{_PASSWORD}\n", Exit.USAGE),
        (["--login", "keystone"], "", Exit.USAGE),
        (["--machine-url", "ftp://x"], "", Exit.USAGE),
        (["--listen", "nowhere:99999999"], "", Exit.USAGE),
        (["-c", "/nonexistent/ferroscope.conf"], "", Exit.USAGE),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_written(
    path: Path, run: Run, words: list[str], stdin: str, expected: Exit
) -> None:
    done = run(*words, stdin=stdin)
    assert done.returncode == expected, done.stdout + done.stderr
    assert done.stderr.startswith(("Error: ", "Usage: "))
    assert _PASSWORD not in done.stdout + done.stderr
    assert not path.exists()
    assert not list(path.parent.glob(".ferroscope*"))


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("192.0.2.11, localhost", "http://192.0.2.11:6385"),
        ("localhost,2001:db8::1", "http://[2001:db8::1]:6385"),
        ("::", ""),
    ],
)
def test_machines_are_told_an_address_that_they_can_reach(path: Path, run: Run, listen: str, url: str) -> None:
    words = ("--listen", listen, "--login", "http_basic", "--boot", "virtual-media")
    assert run(*words, stdin=f"{_PASSWORD}\n").returncode != Exit.USAGE
    settings = load([str(path)])
    assert settings.api.host == tuple(one.strip() for one in listen.split(","))
    assert settings.inspector.callback_endpoint_override == url


def test_settings_are_never_overwritten_unless_replaced(path: Path, run: Run) -> None:
    path.write_text("# comment of the package\n[api]\n# host = localhost\n")
    assert run().returncode != Exit.CONFLICT
    assert path.read_text().startswith("# comment of the package\n")
    before = path.read_text()
    assert run().returncode == Exit.CONFLICT
    assert path.read_text() == before
    assert run("--replace", "--boot", "none").returncode != Exit.CONFLICT
    assert load([str(path)]).inspector.require_managed_boot
    run("--replace", "--boot", "virtual-media")
    assert before in [one.read_text() for one in path.parent.glob("ferroscope.conf.old*")], "it was replaced twice"


def test_a_drop_in_completes_the_file_of_an_operator_and_leaves_it_alone(path: Path, run: Run) -> None:
    comments = "# comment of an operator\n[api]\n# host = localhost\n"
    path.write_text(comments)
    drop_in = Path(f"{path}.d/10-setup.conf")
    words = ("-c", str(drop_in))
    assert not run(*words, "--dry-run", "--boot", "none").stderr
    assert not drop_in.parent.exists()
    done = run(*words, "--boot", "none")
    assert done.returncode in (Exit.OK, Exit.FAILURE), done.stderr
    assert f"ferroscope all -c {path}\n" in done.stdout.partition("Next:")[2]
    assert path.read_text() == comments
    assert load([str(path)]).inspector.require_managed_boot
    assert run(*words).returncode == Exit.CONFLICT


def test_settings_in_the_file_are_settings_of_its_drop_ins(path: Path, run: Run) -> None:
    """Such as those that setup itself wrote into it before it wrote a drop-in."""
    path.write_text("[worker]\ngraceful_timeout = 17\n")
    words = ("-c", f"{path}.d/10-setup.conf")
    refused = run(*words)
    assert (refused.returncode, str(path) in refused.stderr) == (Exit.CONFLICT, True)
    run(*words, "--replace")
    assert load([str(path)]).worker.graceful_timeout != 17
    assert "17" in path.with_name("ferroscope.conf.old").read_text()


def test_a_dry_run_shows_what_would_be_added_and_no_setting_that_is_there(path: Path, run: Run) -> None:
    path.write_text("# Of the package.\n[api]\n#host = localhost\n\n[swift]\n#password =\n")
    before = path.read_text()
    done = run("--listen", "localhost", "--boot", "none", "--dry-run")
    assert done.returncode == Exit.OK, done.stderr
    assert "[api]\nhost = localhost\n" in done.stdout
    assert "[swift]" not in done.stdout
    assert "Of the package" not in done.stdout
    assert path.read_text() == before


def test_an_existing_file_of_users_is_used(path: Path, run: Run) -> None:
    assert run("--login", "http_basic", stdin=f"{_PASSWORD}\n").returncode != Exit.USAGE
    users = (path.parent / "htpasswd").read_text()
    assert users.startswith("admin:$2")
    done = run("--login", "http_basic", "--replace")
    assert "exists and is used" in done.stdout
    assert (path.parent / "htpasswd").read_text() == users


def test_what_the_checks_have_found_is_the_next_step(run: Run, path: Path) -> None:
    wrong = run("--database", f"sqlite:///{path.parent}/missing/machines.db")
    assert wrong.returncode == Exit.FAILURE
    first = wrong.stdout.partition("Next:")[2].splitlines()[1]
    assert f"ferroscope doctor -c {path}" in first
