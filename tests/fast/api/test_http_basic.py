"""HTTP basic authentication: the file's lines, changes of the file, and what it costs to guess."""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import bcrypt
import pytest

from ferroscope.api.auth import http_basic
from ferroscope.api.auth.http_basic import BasicAuthentication, parse
from ferroscope.api.errors import UnauthorizedError, UnavailableError
from ferroscope.config.followed import ConfigFileError
from tests.support.manual_clock import ManualClock
from tests.support.processes import PATIENCE
from tests.support.rows import each

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
OTHER = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()


def headers(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# operators\nalice:{HASH}:admin\nbob:{OTHER}\n")
    return path


def auth(file: Path, clock: ManualClock | None = None, threads: int = 4) -> BasicAuthentication:
    return BasicAuthentication(str(file), clock or ManualClock(), threads=threads)  # type: ignore[arg-type]  # as much as it needs


def test_roles_are_the_third_field_and_reader_without_it(file: Path) -> None:
    users = auth(file)
    alice, bob = users.identify(headers("alice", "secret")), users.identify(headers("bob", "other"))
    assert alice is not None
    assert bob is not None
    assert alice.user == "alice"
    assert alice.method == "http_basic"
    assert "admin" in alice.roles
    assert bob.roles == {"reader"}


@pytest.mark.parametrize(
    "wrong",
    [
        headers("alice", "other"),
        headers("alice", ""),
        headers("nobody", "secret"),
        {"authorization": "Basic !!!"},
        {"authorization": "Basic " + base64.b64encode(b"alice").decode()},
        {"authorization": "basic " + base64.b64encode(b"\xff:secret").decode()},
        {"authorization": "Basic " + "A" * 100_000},
    ],
)
def test_wrong_credentials_are_refused(file: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(UnauthorizedError):
        auth(file).identify(wrong)


def test_other_credentials_are_none_of_its_business(file: Path) -> None:
    users = auth(file)
    assert users.identify({}) is None
    assert users.identify({"authorization": "Bearer fst_1_2"}) is None


def test_a_right_password_is_hashed_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = auth(file)
    assert users.remembered_identity(headers("alice", "secret")) is None
    users.identify(headers("alice", "secret"))
    monkeypatch.setattr(http_basic, "_matches", None)  # it would fail if it were called again
    assert users.identify(headers("alice", "secret")) == users.remembered_identity(headers("alice", "secret"))


def test_a_password_in_use_is_remembered_for_a_working_day_since_its_last_use(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    users = auth(file, clock)
    users.identify(headers("alice", "secret"))
    monkeypatch.setattr(http_basic, "_matches", None)
    for _ in range(5):
        clock.now += 11 * 3600
        assert users.identify(headers("alice", "secret")) is not None
    clock.now += 12 * 3600
    assert users.remembered_identity(headers("alice", "secret")) is None


def test_a_wrong_password_that_is_repeated_is_neither_hashed_nor_a_guess_until_it_is_right(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    users = auth(file, clock)
    wrong = [headers("alice", "new"), headers("nobody", "new")]
    for given in wrong:
        assert not users.was_wrong(given)
        with pytest.raises(UnauthorizedError):
            users.identify(given)
    with monkeypatch.context() as patched:
        patched.setattr(http_basic, "_matches", None)
        for given in wrong:
            assert users.was_wrong(given)
            with pytest.raises(UnauthorizedError):
                users.identify(given)
    new = bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()
    file.write_text(f"alice:{new}:admin\nnobody:{new}\n")
    clock.now += 2
    assert [users.was_wrong(given) for given in wrong] == [False, False]
    assert [users.identify(given) is not None for given in wrong] == [True, True]


def test_unknown_names_cost_as_much_as_known_ones_whatever_the_costs_of_these(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dear = bcrypt.hashpw(b"secret", bcrypt.gensalt(5)).decode()
    file.write_text(f"alice:{HASH}:admin\nbob:{dear}\n")
    users, checked = auth(file), []
    monkeypatch.setattr(http_basic, "_matches", lambda _password, hashed: checked.append(hashed) or False)
    for password in ("x", "y"):
        for number in range(40):
            with pytest.raises(UnauthorizedError):
                users.identify(headers(f"nobody{number}", password))
    assert checked[:40] == checked[40:]
    assert {hashed.decode() for hashed in checked} == {HASH, dear}


def test_a_changed_file_is_read_again_and_old_passwords_end(file: Path) -> None:
    clock = ManualClock()
    users = auth(file, clock)
    assert users.identify(headers("alice", "secret"))
    file.write_text(f"alice:{OTHER}:reader\n")
    clock.now += 2
    with pytest.raises(UnauthorizedError):
        users.identify(headers("alice", "secret"))
    changed = users.identify(headers("alice", "other"))
    assert changed is not None
    assert changed.roles == {"reader"}


def test_a_file_that_is_broken_later_changes_nothing(file: Path) -> None:
    clock = ManualClock()
    users = auth(file, clock)
    file.write_text("alice\n")
    clock.now += 2
    assert users.identify(headers("alice", "secret"))
    file.unlink()
    clock.now += 2
    assert users.identify(headers("alice", "secret"))


@each(
    ("text", "reason"),
    [
        ("", "no user"),
        ("alice:{SHA}abc\n", "line 1"),
        ("alice:secret\n", "line 1"),
        (f"alice:{HASH}\nbob:{HASH[:-1]}\n", "line 2"),
        (f"alice:{HASH}:king\n", "king"),
        (f"alice:{HASH}\nalice:{OTHER}\n", "twice"),
    ],
)
def test_a_broken_file_is_refused_with_its_line_but_without_its_text(text: str, reason: str) -> None:
    with pytest.raises(ConfigFileError, match=reason) as refused:
        parse(text)
    assert "secret" not in str(refused.value)
    assert HASH[:20] not in str(refused.value)


def test_checks_never_take_all_threads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = auth(file, threads=3)
    began, go_on = threading.Event(), threading.Event()

    def slow(_password: bytes, _hashed: bytes) -> bool:
        began.set()
        return go_on.wait(PATIENCE)

    monkeypatch.setattr(http_basic, "_matches", slow)
    found: list[object] = []
    same = [threading.Thread(target=lambda: found.append(users.identify(headers("alice", "secret"))))]
    same[0].start()
    assert began.wait(PATIENCE)
    with pytest.raises(UnavailableError):
        users.identify(headers("bob", "guess"))
    # Those who send the same wait for the one check.
    same.append(threading.Thread(target=lambda: found.append(users.identify(headers("alice", "secret")))))
    same[1].start()
    go_on.set()
    for thread in same:
        thread.join(PATIENCE)
    assert len(found) == 2
    assert users.identify(headers("bob", "other"))


def test_a_name_that_is_attacked_leaves_a_check_to_the_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = auth(file, threads=4)
    with pytest.raises(UnauthorizedError):
        users.identify(headers("alice", "guess"))
    began, go_on = threading.Event(), threading.Event()

    def slow(password: bytes, _hashed: bytes) -> bool:
        if password == b"other":
            return True
        began.set()
        go_on.wait(PATIENCE)
        return False

    monkeypatch.setattr(http_basic, "_matches", slow)

    def attack() -> None:
        with pytest.raises(UnauthorizedError):
            users.identify(headers("alice", "guess 1"))

    attacker = threading.Thread(target=attack)
    attacker.start()
    assert began.wait(PATIENCE)
    with pytest.raises(UnavailableError):
        users.identify(headers("alice", "guess 2"))
    assert users.identify(headers("bob", "other")) is not None
    go_on.set()
    attacker.join(PATIENCE)
