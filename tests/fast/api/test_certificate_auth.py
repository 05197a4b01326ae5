"""Identities of client certificates: by any of their names, with the roles of a file that may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.api.auth.certificate import CertificateAuth, parse
from ferroscope.config.followed import FileError
from ferroscope.http_server.agreed import NAMES
from tests.support.manual_clock import ManualClock

_FILE = """\
# operators
alice.example.org:admin

spiffe://example.org/monitoring : reader , service
Bob Smith:member
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "roles"
    path.write_text(_FILE)
    return path


@pytest.mark.parametrize(
    ("names", "user", "role"),
    [
        ("alice.example.org", "alice.example.org", "admin"),
        ("cn nobody knows\nalice.example.org", "alice.example.org", "admin"),
        ("Bob Smith\nalice.example.org", "Bob Smith", "member"),
        ("spiffe://example.org/monitoring ", None, None),
        ("spiffe://example.org/monitoring", "spiffe://example.org/monitoring", "service"),
        ("mallory", None, None),
        ("alice", None, None),
        ("", None, None),
    ],
)
def test_the_first_listed_name_counts(file: Path, names: str, user: str | None, role: str | None) -> None:
    found = CertificateAuth(str(file), ManualClock()).identify({NAMES: names, "authorization": "Basic x"})
    assert (found and found.user) == user
    if found is not None:
        assert found.method == "certificate"
        assert role in found.roles
        assert found.system_scope


def test_without_a_certificate_there_is_no_identity(file: Path) -> None:
    assert CertificateAuth(str(file), ManualClock()).identify({"ssl-client-verify": "SUCCESS"}) is None


@pytest.mark.parametrize("line", ["alice", "alice:", ":admin", "alice:root", "a:admin\na:reader"])
def test_an_invalid_line_is_named(line: str) -> None:
    with pytest.raises(FileError, match=r"line \d"):
        parse(line)


def test_a_changed_file_is_read_and_a_broken_one_is_not(file: Path) -> None:
    clock = ManualClock()
    auth = CertificateAuth(str(file), clock)
    file.write_text("carol:reader\n")
    clock.now += 2
    assert auth.identify({NAMES: "alice.example.org"}) is None
    assert auth.identify({NAMES: "carol"}) is not None
    file.write_text("carol:emperor\n")
    clock.now += 2
    assert auth.identify({NAMES: "carol"}) is not None
    file.write_text("")
    clock.now += 2
    assert auth.identify({NAMES: "carol"}) is not None
    file.unlink()
    clock.now += 2
    assert auth.identify({NAMES: "carol"}) is not None
