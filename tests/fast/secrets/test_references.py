"""References to secrets: what callers of the API can reach with them, and what an answer costs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.plugins import SecretOptions, SecretSourceError
from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.core.secrets import STAND_IN, for_validation
from ferroscope.secrets.env import EnvSource
from ferroscope.secrets.file import FileSource
from ferroscope.secrets.references import Resolver, SecretReader, load_sources
from ferroscope_client.core.reasons import Reason
from ferroscope_client.installed import PluginError
from tests.support.processes import PATIENCE
from tests.support.rows import each

SECRET = "Canary-e2"
UUID = "11111111-1111-4111-8111-111111111111"


class Source:
    """Answers as the test says."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer, self.asked = answer, 0

    def resolve(self, path: str) -> str:
        self.asked += 1
        return self.answer(path)


@pytest.fixture
def files(tmp_path: Path) -> FileSource:
    """Return a source with one secret, and more files beside its directory and in it."""
    directory = tmp_path / "bmc"
    (directory / "rack1").mkdir(parents=True)
    (directory / "rack1" / "password").write_text(f"{SECRET}\n")
    (directory / "binary").write_bytes(b"\x80\xff\xfe")
    (directory / "large").write_text("x" * 70_000)
    os.mkfifo(directory / "fifo")
    (tmp_path / "other").write_text("private")
    (tmp_path / "bmc-other").write_text("private")
    (directory / "out").symlink_to(tmp_path / "other")
    (directory / "in").symlink_to(directory / "rack1" / "password")
    return FileSource(SecretOptions(file_directory=str(directory)))


@pytest.mark.parametrize("path", ["rack1/password", "in", "./rack1//password"])
def test_a_file_below_the_directory_is_read_without_its_last_line_end(files: FileSource, path: str) -> None:
    assert files.resolve(path) == SECRET


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "../other", "../bmc-other", "out", "/etc/passwd", "rack1", "rack1/../../other", "absent", "fifo",
     "binary", "large", "a\0b", "rack1/password/x", "x" * 5000],
)  # fmt: skip
def test_no_other_file_can_be_read_and_none_blocks(files: FileSource, path: str) -> None:
    with pytest.raises(SecretSourceError) as caught:
        files.resolve(path)
    assert "private" not in str(caught.value)


def test_a_directory_that_is_replaced_as_kubernetes_does_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, secret in (("..1", "old"), ("..2", SECRET)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "password").write_text(secret)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "password").symlink_to("..data/password")
    really_open = os.open

    def open_late(path: str, flags: int) -> int:
        """Open it after the file that was looked up is gone."""
        if (tmp_path / "..1" / "password").exists():
            (tmp_path / "new").symlink_to("..2")
            (tmp_path / "new").rename(tmp_path / "..data")
            (tmp_path / "..1" / "password").unlink()
        return really_open(path, flags)

    source = FileSource(SecretOptions(file_directory=str(tmp_path)))
    monkeypatch.setattr(os, "open", open_late)
    assert source.resolve("password") == SECRET
    (tmp_path / "..2" / "password").unlink()
    with pytest.raises(SecretSourceError):
        source.resolve("password")


@pytest.mark.parametrize("replaced", [lambda file: file.unlink(), lambda file: file.write_text("")])
def test_a_secret_that_is_gone_for_a_moment_is_waited_for(tmp_path: Path, replaced: Callable[[Path], object]) -> None:
    now = 100.0
    file = tmp_path / "password"
    file.write_text(SECRET)
    resolver = Resolver({"s": FileSource(SecretOptions(file_directory=str(tmp_path)))}, clock=lambda: now, keep=30.0)
    assert resolver.resolve("secret://s/password") == SECRET
    now += 31
    replaced(file)
    for reference, passes in (("secret://s/password", True), ("secret://s/never-there", False)):
        with pytest.raises(SecretSourceError) as caught:
            resolver.resolve(reference)
        assert caught.value.transient is passes
    file.write_text("new")
    assert resolver.resolve("secret://s/password") == "new"


def test_what_exists_outside_of_the_directory_cannot_be_found_out(files: FileSource) -> None:
    messages = set()
    for path in ("../other", "../absent", "absent", "/etc/passwd", "out"):
        with pytest.raises(SecretSourceError) as caught:
            files.resolve(path)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_only_variables_with_the_prefix_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROSCOPE_SECRET_A", SECRET)
    monkeypatch.setenv("OS_DATABASE__CONNECTION", "private")
    source = EnvSource(SecretOptions())
    assert source.resolve("FERROSCOPE_SECRET_A") == SECRET
    for name in ("OS_DATABASE__CONNECTION", "PATH", "", "FERROSCOPE_SECRET_B"):
        with pytest.raises(SecretSourceError):
            source.resolve(name)


def test_built_in_sources_are_found_by_entry_point_and_need_their_option(tmp_path: Path) -> None:
    assert set(load_sources(["file", "env"], SecretOptions(file_directory=str(tmp_path)))) == {"file", "env"}
    for name, options in (("file", SecretOptions()), ("env", SecretOptions(env_prefix="")), ("vault", SecretOptions())):
        with pytest.raises(PluginError):
            load_sources([name], options)


def test_a_resolved_secret_is_kept_for_a_while() -> None:
    now = 100.0
    source = Source(lambda _path: SECRET)
    resolver = Resolver({"s": source}, clock=lambda: now, keep=30.0)
    for _ in range(3):
        assert resolver.resolve("secret://s/a") == SECRET
    assert source.asked == 1
    now += 31
    resolver.resolve("secret://s/a")
    assert source.asked == 2


def test_a_source_that_hangs_costs_its_timeout() -> None:
    release = threading.Event()
    resolver = Resolver({"s": Source(lambda _path: str(release.wait(PATIENCE)))}, timeout=0.05)
    with pytest.raises(SecretSourceError) as caught:
        resolver.resolve("secret://s/a")
    release.set()
    assert caught.value.transient


def _fail(message: str) -> str:
    raise RuntimeError(message)


@each("answer", [lambda _path: _fail(SECRET), lambda _path: "", lambda _path: "x" * 70_000])
def test_what_a_source_does_wrong_is_said_without_what_it_returned(answer: Callable[[str], str]) -> None:
    with pytest.raises(SecretSourceError) as caught:
        Resolver({"s": Source(answer)}).resolve("secret://s/a")
    assert SECRET not in str(caught.value)


def test_a_driver_gets_the_secret_and_an_error_names_the_reference() -> None:
    info = {
        "redfish_username": "secret://s/user",
        "redfish_password": "secret://s/pw",
        "redfish_address": "secret://s/x",
    }
    reader = SecretReader(resolver=Resolver({"s": Source(lambda path: f"{SECRET}/{path}")}))
    node = Node(uuid=UUID, driver="redfish", driver_info=info)
    # The location of the BMC is never a reference: it is checked where it is written.
    expected = {"redfish_username": f"{SECRET}/user", "redfish_password": f"{SECRET}/pw"}
    assert reader.reveal(node).driver_info == info | expected
    assert node.driver_info == info
    with pytest.raises(BmcError, match="secret://s/user") as caught:
        SecretReader().reveal(node)
    assert caught.value.reason is Reason.REFERENCE_UNRESOLVED
    assert for_validation(node).driver_info == info | {"redfish_username": STAND_IN, "redfish_password": STAND_IN}


def test_a_reference_is_a_stored_secret_when_the_address_changes() -> None:
    before = Node(uuid=UUID, driver="redfish", driver_info={"redfish_address": "a", "redfish_username": "secret://s/u"})
    after = Node(uuid=UUID, driver="redfish", driver_info=before.driver_info | {"redfish_address": "b"})
    assert bmc_access.exposed_fields(before, after, ()) == (["redfish_address"], ["redfish_username"])
