"""Where the command line finds credentials, to which addresses it sends them, and that no message contains any."""

from __future__ import annotations

import base64
import errno
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from ferroscope_client.cli.main import commands, main
from ferroscope_client.client import Client
from ferroscope_client.credentials import Credentials, check_may_be_sent, from_environment
from ferroscope_client.errors import Exit, Failure
from tests.support.rows import each

URL = "http://127.0.0.1:6385"
TOKEN = "fst_0123456789ab_" + "t" * 43
SECRET = "word-that-is-secret"


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


Write = Callable[..., dict[str, str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes the credentials file, and returns the variable by which it is found."""

    def write(text: str, mode: int = 0o600) -> dict[str, str]:
        file = tmp_path / "ferroscope" / "credentials"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return {"XDG_CONFIG_HOME": str(tmp_path)}

    return write


def failure(env: dict[str, str], url: str = URL) -> Failure:
    """Return the failure of a search; its texts must not have the secret."""
    with pytest.raises(Failure) as caught:
        from_environment(url, env)
    assert SECRET not in caught.value.message + caught.value.advice
    assert caught.value.exit_code == Exit.USAGE
    return caught.value


def test_nothing_is_sent_by_who_has_nothing(tmp_path: Path) -> None:
    found = from_environment(URL, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert (found.source, found.headers()) == ("", {})


def test_whose_home_is_missing_or_somebody_elses_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is a number, or after ``runuser``, which leaves HOME as it was."""
    monkeypatch.setenv("HOME", "/somebody/else")
    monkeypatch.setattr(Path, "is_file", _denied)
    assert from_environment(URL, {}).source == ""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert from_environment(URL, {}).source == ""


def _denied(_path: Path) -> bool:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_each_kind_becomes_its_header_and_the_first_one_counts(write: Write, tmp_path: Path) -> None:
    in_file = write(f"[{URL}]\ntoken = {TOKEN}-of-the-file\n")
    by_name = {**in_file, "FERROSCOPE_USERNAME": "alice", "FERROSCOPE_PASSWORD": SECRET}
    by_token = {**by_name, "FERROSCOPE_TOKEN": TOKEN}
    assert from_environment(URL, by_token).headers() == {"X-Auth-Token": TOKEN}
    assert from_environment(URL, by_name).headers() == basic("alice", SECRET)
    assert from_environment(URL, in_file).headers() == {"X-Auth-Token": f"{TOKEN}-of-the-file"}


def test_a_token_and_a_password_may_be_in_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{TOKEN}\n")
    assert from_environment(URL, {"FERROSCOPE_TOKEN_FILE": str(file)}).headers() == {"X-Auth-Token": TOKEN}
    env = {"FERROSCOPE_USERNAME": "alice", "FERROSCOPE_PASSWORD_FILE": str(file)}
    assert from_environment(URL, env).headers() == basic("alice", TOKEN)


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    env = {"FERROSCOPE_TOKEN": "", "FERROSCOPE_USERNAME": "", "XDG_CONFIG_HOME": str(tmp_path)}
    assert from_environment(URL, env).source == ""


@each("token", [f"{SECRET} x", f"{SECRET}\r\nHost: evil", f"{SECRET}ß", f"{SECRET}\0", SECRET * 900])
def test_a_token_that_would_break_the_header_is_refused_without_being_shown(token: str) -> None:
    assert "FERROSCOPE_TOKEN" in failure({"FERROSCOPE_TOKEN": token}).message


def test_what_is_missing_or_unreadable_is_named(tmp_path: Path) -> None:
    assert "FERROSCOPE_PASSWORD_FILE" in failure({"FERROSCOPE_USERNAME": "alice"}).advice
    none = tmp_path / "none"
    assert str(none) in failure({"FERROSCOPE_TOKEN_FILE": str(none)}).message
    none.write_text("\n")
    assert str(none) in failure({"FERROSCOPE_TOKEN_FILE": str(none)}).message
    failure({"FERROSCOPE_USERNAME": "a:b", "FERROSCOPE_PASSWORD": SECRET})


def test_the_file_gives_to_each_service_its_own_and_to_others_nothing(write: Write) -> None:
    env = write(
        f"[https://one.example]\ntoken = {TOKEN}\n\n[http://two.example:6385/]\nusername = u\npassword = p%:w\n"
    )
    assert from_environment("https://one.example:443/v1", env).headers() == {"X-Auth-Token": TOKEN}
    assert from_environment("http://TWO.example:6385", env).headers() == basic("u", "p%:w")
    for other in ("http://one.example", "https://one.example:6385", "https://evil.example", "https://one.example.evil"):
        assert from_environment(other, env).source == ""


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_helps(write: Write, mode: int) -> None:
    env = write(f"[{URL}]\ntoken = {SECRET}\n", mode)
    found = failure(env)
    assert f"{mode:04o}" in found.message
    assert found.advice.startswith("chmod 600 ")


@pytest.mark.parametrize(
    "text",
    [
        f"{SECRET}\n",
        f"[{URL}]\n{SECRET}\n",
        f"[{URL}]\npassword = {SECRET}\n",
        f"[{URL}]\ntoken = a {SECRET}\n",
        f"[{URL}]\n[{URL}]\ntoken = {SECRET}\n",
    ],
)
def test_a_file_with_mistakes_is_reported_without_its_content(write: Write, text: str) -> None:
    assert "credentials" in failure(write(text)).message


@each("url", ["http://192.0.2.1:6385", "http://ferroscope.example", "http://[2001:db8::1]:6385"])
def test_credentials_cross_no_network_in_plain_text_unless_allowed(url: str) -> None:
    credentials = Credentials("FERROSCOPE_TOKEN", {"X-Auth-Token": SECRET})
    with pytest.raises(Failure) as caught:
        Client(url, credentials=credentials)
    assert caught.value.exit_code == Exit.USAGE
    assert "--insecure-http" in caught.value.advice
    Client(url, credentials=credentials, insecure_http=True)
    Client(url)


@each("url", [URL, "http://localhost:1", "http://[::1]:6385", "https://ferroscope.example"])
def test_loopback_and_https_need_no_consent(url: str) -> None:
    check_may_be_sent(url, "they", insecure_http=False)


def test_no_option_takes_a_secret() -> None:
    def options(command: object) -> set[str]:
        below = getattr(command, "commands", {})
        own = {name for param in getattr(command, "params", ()) for name in getattr(param, "opts", ())}
        return own.union(*(options(found) for found in below.values()))

    import click

    context = click.Context(main)
    every = options(main).union(*(options(main.get_command(context, name)) for name in commands()))
    assert "--os-cloud" in every
    assert not {name for name in every if name.startswith(("--pass", "--token", "--secret"))}


def test_credentials_do_not_show_what_they_are() -> None:
    assert SECRET not in repr(Credentials("FERROSCOPE_TOKEN", {"X-Auth-Token": SECRET}))
