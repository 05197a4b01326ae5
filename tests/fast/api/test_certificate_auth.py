"""Identities of client certificates: by any of their names, with the roles of a file that may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.api.auth.certificate import CertificateAuth, parse
from ferroscope.config.followed import ConfigFileError
from ferroscope.http_server.agreed import NAMES
from ferroscope.http_server.tls import client_certificate
from tests.support.manual_clock import ManualClock
from tests.support.rows import each

_FILE = """\
# operators
CN:alice.example.org:admin

URI:spiffe://example.org/monitoring : reader , service
CN:Bob Smith:member
mail:bob@example.org:reader
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "roles"
    path.write_text(_FILE)
    return path


@pytest.mark.parametrize(
    ("names", "user", "role"),
    [
        ("CN:alice.example.org", "alice.example.org", "admin"),
        ("CN:nobody knows\nCN:alice.example.org", "alice.example.org", "admin"),
        ("CN:Bob Smith\nCN:alice.example.org", "Bob Smith", "member"),
        ("URI:spiffe://example.org/monitoring ", None, None),
        ("URI:spiffe://example.org/monitoring", "spiffe://example.org/monitoring", "service"),
        ("mail:bob@example.org", "bob@example.org", "reader"),
        ("DNS:alice.example.org", None, None),
        ("mail:alice.example.org", None, None),
        ("URI:alice.example.org", None, None),
        ("CN:spiffe://example.org/monitoring", None, None),
        ("CN:mallory", None, None),
        ("CN:alice", None, None),
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


@each("line", ["alice", "CN:alice", "CN:alice:", "CN::admin", "CN:a:root", "CN:a:admin\nCN:a:reader"])
def test_an_invalid_line_is_named(line: str) -> None:
    with pytest.raises(ConfigFileError, match=r"line \d"):
        parse(line)


@each("line", ["alice.example.org:admin", "spiffe://example.org/x:admin", "cn:alice:admin"])
def test_a_line_that_does_not_say_which_kind_of_name_it_means_is_refused(line: str) -> None:
    with pytest.raises(ConfigFileError, match=r"line 1: .* begin it with CN:"):
        parse(line)


def test_of_several_common_names_none_counts() -> None:
    subject = ((("commonName", "alice"),), (("commonName", "deploy.example.org"),))
    others = (("DNS", "a.example.org"), ("email", "a@example.org"), ("URI", "urn:a"), ("IP Address", "192.0.2.1"))
    names = {NAMES: "DNS:a.example.org\nmail:a@example.org\nURI:urn:a"}
    assert client_certificate({"subject": subject, "subjectAltName": others}) == names
    assert client_certificate({"subject": subject[:1]}) == {NAMES: "CN:alice"}


def test_a_changed_file_is_read_and_a_broken_one_is_not(file: Path) -> None:
    clock = ManualClock()
    auth = CertificateAuth(str(file), clock)
    file.write_text("CN:carol:reader\n")
    clock.now += 2
    assert auth.identify({NAMES: "CN:alice.example.org"}) is None
    assert auth.identify({NAMES: "CN:carol"}) is not None
    file.write_text("CN:carol:emperor\n")
    clock.now += 2
    assert auth.identify({NAMES: "CN:carol"}) is not None
    file.write_text("")
    clock.now += 2
    assert auth.identify({NAMES: "CN:carol"}) is not None
    file.unlink()
    clock.now += 2
    assert auth.identify({NAMES: "CN:carol"}) is not None
