"""``ferroscope user``: the file that the api reads, whatever happens while it is edited."""

from __future__ import annotations

import json
from pathlib import Path

import bcrypt
import pytest
from click.testing import CliRunner, Result

from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit
from tests.fast.cli.running import NO_CREDENTIALS, run

PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def user(file: Path, *words: str, password: str = PASSWORD, check: int = 0) -> Result:
    line = ["user", *words, "--file", str(file)]
    result = CliRunner().invoke(main, line, input=f"{password}\n", env=NO_CREDENTIALS)
    assert result.exit_code == check, result.output
    return result


def entries(file: Path) -> dict[str, tuple[str, str]]:
    """Return hash and roles of each user."""
    lines = [line.split(":") for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {name: (hashed, ":".join(rest)) for name, hashed, *rest in lines}


def test_a_user_is_added_with_a_hash_and_roles_and_the_password_is_not_shown(file: Path) -> None:
    shown = user(file, "add", "alice", "--role", "admin", "--role", "service").output
    hashed, roles = entries(file)["alice"]
    assert bcrypt.checkpw(PASSWORD.encode(), hashed.encode())
    assert hashed.startswith("$2b$10$")
    assert roles == "admin,service"
    assert PASSWORD not in shown + file.read_text()


def test_the_password_is_never_an_argument() -> None:
    assert run("user", "add", "--help").output.lower().count("--password") == 0
    assert run("user", "add", "alice", "secret", "--role", "admin").exit_code == Exit.USAGE


def test_the_file_is_for_its_owner_only_and_keeps_the_mode_that_it_has(file: Path) -> None:
    user(file, "add", "alice", "--role", "admin")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    user(file, "add", "bob", "--role", "reader")
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(file.parent.iterdir()) == [file]


def test_the_api_reads_the_file(file: Path) -> None:
    from ferroscope.api.auth.http_basic import parse

    user(file, "add", "alice", "--role", "member")
    parse(file.read_text())


def test_comments_and_other_users_stay_as_they_are(file: Path) -> None:
    before = "# operators\nold:$2y$05$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234\n\n# end\n"
    file.write_text(before)
    user(file, "add", "alice", "--role", "admin")
    assert file.read_text().startswith(before)
    user(file, "remove", "alice")
    assert file.read_text() == before


def test_an_existing_user_is_replaced_only_when_told(file: Path) -> None:
    user(file, "add", "alice", "--role", "admin")
    user(file, "add", "bob", "--role", "reader")
    before = file.read_text()
    user(file, "add", "alice", "--role", "reader", password="another one", check=Exit.CONFLICT)
    assert file.read_text() == before
    user(file, "add", "alice", "--role", "reader", "--replace", password="another one")
    hashed, roles = entries(file)["alice"]
    assert bcrypt.checkpw(b"another one", hashed.encode())
    assert roles == "reader"
    assert list(entries(file)) == ["alice", "bob"]


@pytest.mark.parametrize("password", ["", "2short", "x" * 73, "ä" * 37, "nul\0in-it"])
def test_a_password_that_cannot_be_used_is_refused(file: Path, password: str) -> None:
    result = user(file, "add", "alice", "--role", "admin", password=password, check=Exit.USAGE)
    assert not file.exists()
    assert not password or password not in result.output


@pytest.mark.parametrize("name", ["", "a:b", "#x", "a b", "x" * 65, "a\nb"])
def test_a_name_that_would_break_the_file_is_refused(file: Path, name: str) -> None:
    user(file, "add", "--role", "admin", "--", name, check=Exit.USAGE) if name else None
    assert not file.exists()


def test_the_last_user_cannot_be_removed_because_the_api_would_ignore_the_file(file: Path) -> None:
    user(file, "add", "alice", "--role", "admin")
    user(file, "remove", "alice", check=Exit.CONFLICT)
    assert list(entries(file)) == ["alice"]


def test_a_user_who_is_not_there_is_not_found(file: Path) -> None:
    user(file, "remove", "alice", check=Exit.NOT_FOUND)
    user(file, "list", check=Exit.NOT_FOUND)
    user(file, "add", "alice", "--role", "admin")
    user(file, "remove", "bob", check=Exit.NOT_FOUND)


def test_users_are_listed_without_hashes(file: Path) -> None:
    user(file, "add", "alice", "--role", "admin")
    with file.open("a") as stream:
        stream.write("old:$2y$05$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234\n")
    shown = user(file, "list", "-o", "json").output
    assert json.loads(shown) == {"users": [{"name": "alice", "roles": ["admin"]}, {"name": "old", "roles": ["reader"]}]}
    assert "$2" not in user(file, "list").output


def test_the_target_of_a_link_is_replaced_and_the_link_stays(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    user(link, "add", "alice", "--role", "admin")
    assert link.is_symlink()
    assert list(entries(file)) == ["alice"]


def test_without_an_option_it_is_the_file_that_the_api_reads(file: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "ferroscope.conf"
    configuration.write_text(f"[api]\nhttp_basic_auth_user_file = {file}\n")
    user(file, "add", "alice", "--role", "admin")
    result = run("user", "list", "-c", str(configuration))
    assert "alice" in result.stdout
    configuration.write_text("[api]\nhttp_basic_auth_user_file =\n")
    result = run("user", "list", "-c", str(configuration))
    assert result.exit_code == Exit.USAGE
    assert "http_basic_auth_user_file" in result.stderr
