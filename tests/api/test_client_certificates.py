"""A client certificate as an identity, beside passwords: its roles, and what cannot pass for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.errors import SetupError
from ferroscope.config.load import ConfigurationError, load
from ferroscope.http_server.agreed import NAMES
from tests.api.service import Service

_HASH = "$2b$04$abcdefghijklmnopqrstuuPSo6pBRhs3tNSrQhxwgxNvXUhQoPq1e"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    users, roles = tmp_path / "htpasswd", tmp_path / "roles"
    users.write_text(f"bob:{_HASH}:admin\n")
    roles.write_text("DNS:alice.example.org:admin\nURI:spiffe://example.org/monitoring:reader\n")
    return {"http_basic_auth_user_file": str(users), "tls_client_roles_file": str(roles)}


@pytest.fixture
def secured(sqlite_url: str, files: dict[str, str]) -> Service:
    """Return a service with a file of users and one of certificates."""
    return Service(sqlite_url, auth_strategy="http_basic", **files)


@pytest.mark.parametrize(
    ("names", "read", "written"),
    [
        ("CN:alice\nDNS:alice.example.org", 200, 201),
        ("URI:spiffe://example.org/monitoring", 200, 403),
        ("CN:mallory\nmail:alice.example.org", 401, 401),
        (None, 401, 401),
    ],
)
def test_the_roles_of_a_certificate_decide(secured: Service, names: str | None, read: int, written: int) -> None:
    extras = {} if names is None else {"extras": {NAMES: names}}
    assert secured.bare_metal.get("/v1/nodes", **extras).status_code == read
    answer = secured.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, **extras)
    assert answer.status_code == written, answer.text


def test_other_credentials_count_before_the_certificate(secured: Service) -> None:
    wrong = {"Authorization": "Basic Ym9iOndyb25n"}
    answer = secured.bare_metal.get("/v1/nodes", headers=wrong, extras={NAMES: "DNS:alice.example.org"})
    assert answer.status_code == 401


def test_a_header_cannot_pass_for_a_certificate(secured: Service) -> None:
    for name in (NAMES, "Ferroscope.Client-Certificate", "SSL-Client-S-DN-CN"):
        assert secured.bare_metal.get("/v1/nodes", headers={name: "alice.example.org"}).status_code == 401


def test_a_file_that_cannot_be_used_is_named(sqlite_url: str, files: dict[str, str]) -> None:
    Path(files["tls_client_roles_file"]).write_text("CN:alice:emperor\n")
    with pytest.raises(SetupError, match="tls_client_roles_file"):
        Service(sqlite_url, auth_strategy="http_basic", **files)


@pytest.mark.parametrize("strategy", ["noauth", "http_basic"])
def test_roles_without_certificates_or_authentication_are_refused(tmp_path: Path, strategy: str) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_text(f"[api]\nauth_strategy = {strategy}\ntls_client_roles_file = /roles\n")
    with pytest.raises(ConfigurationError, match="tls_client_roles_file"):
        load([str(file)])
