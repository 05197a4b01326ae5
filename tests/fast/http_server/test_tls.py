"""The certificate of the listeners: what a process refuses to start with, and when it warns."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ferroscope.config import followed
from ferroscope.config.errors import SetupError
from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.options import ApiSettings
from ferroscope.http_server.tls import certificates, expiry
from tests.support.certificates import DAY, Authority, Pair
from tests.support.rows import each


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _settings(pair: Pair, **more: str) -> ApiSettings:
    files = {"tls_certificate_file": str(pair.certificate), "tls_key_file": str(pair.key)}
    return ApiSettings(**(files | more))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert certificates(ApiSettings()) is None


def test_a_usable_pair_is_loaded(authority: Authority) -> None:
    loaded = certificates(_settings(authority.issue("server")))
    assert loaded is not None
    assert loaded.problem() is None


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ("no certificate file", "tls_certificate_file"),
        ("no key file", "tls_key_file"),
        ("not a certificate", "tls_certificate_file"),
        ("not a key", "tls_key_file"),
        ("another key", "tls_key_file"),
        ("encrypted key", "tls_key_file"),
        ("expired", "tls_certificate_file"),
        ("no CA", "tls_client_ca_file"),
        ("not a CA", "tls_client_ca_file"),
    ],
)
def test_a_process_does_not_start_with_an_unusable_file(authority: Authority, wrong: str, option: str) -> None:
    pair = authority.issue("server", ends=-DAY if wrong == "expired" else DAY)
    more = {}
    match wrong:
        case "no certificate file":
            pair.certificate.unlink()
        case "no key file":
            pair.key.unlink()
        case "not a certificate":
            pair.certificate.write_text("nonsense")
        case "not a key":
            pair.key.write_text("nonsense")
        case "another key":
            pair.key.write_bytes(authority.issue("other").key.read_bytes())
        case "encrypted key":
            key = load_pem_private_key(pair.key.read_bytes(), None)
            encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
            pair.key.write_bytes(encrypted)
        case "no CA" | "not a CA":
            file = pair.key.with_name("missing") if wrong == "no CA" else pair.key
            more = {"tls_client_certificates": "required", "tls_client_ca_file": str(file)}
    with pytest.raises(SetupError) as raised:
        certificates(_settings(pair, **more))
    assert f"[api] {option}" in str(raised.value)


@each(("left", "code"), [(20, None), (14.1, None), (13.9, "certificate-expires"), (-1, "certificate-expired")])
def test_two_weeks_before_it_expires_there_is_a_finding(left: float, code: str | None) -> None:
    now = datetime.now(UTC)
    found = expiry(now + timedelta(days=left), now, Path("server.crt"))
    assert (found and found.code) == code


def test_the_status_of_a_process_has_the_finding(authority: Authority) -> None:
    loaded = certificates(_settings(authority.issue("server", ends=3 * DAY)))
    assert loaded is not None
    found = loaded.problem()
    assert found is not None
    assert found.code == "certificate-expires"


@pytest.mark.parametrize(
    "lines",
    [
        "tls_certificate_file = /a",
        "tls_key_file = /a",
        "tls_client_certificates = required\ntls_client_ca_file = /a",
        "tls_certificate_file = /a\ntls_key_file = /b\ntls_client_certificates = optional",
        "tls_minimum_version = 1.1",
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_text(f"[api]\n{lines}\n")
    with pytest.raises(ConfigurationError, match=r"tls_"):
        load([str(file)])


def _agreed(server: ssl.SSLContext, offered: str, version: ssl.TLSVersion) -> str | None:
    """Return the cipher suite of a connection with a client that offers only this; None if there is none."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version = client.maximum_version = version
    if version is ssl.TLSVersion.TLSv1_2:
        client.set_ciphers(offered)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    for end in ends * 4:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return None
    found = ends[0].cipher()
    return found and found[0]


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_recorded_connections_stay_secret_if_the_key_is_stolen(
    authority: Authority, kind: Literal["ec", "rsa"]
) -> None:
    loaded = certificates(_settings(authority.issue("server", kind=kind)))
    assert loaded is not None
    two, three = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for weak in ("AES256-GCM-SHA384", "AES128-SHA", "ECDHE+AES+SHA256", "ECDHE+AES+SHA1"):
        assert _agreed(loaded.context, f"{weak}:@SECLEVEL=0", two) is None, weak
    for strong in ("ECDHE+AESGCM", "ECDHE+CHACHA20"):
        assert str(_agreed(loaded.context, strong, two)).startswith("ECDHE-")
    assert str(_agreed(loaded.context, "", three)).startswith("TLS_")


def test_old_firmware_can_be_given_its_ciphers(authority: Authority) -> None:
    pair = authority.issue("server", kind="rsa")
    loaded = certificates(_settings(pair, tls_ciphers="ECDHE+AESGCM:AES128-SHA256"))
    assert loaded is not None
    assert _agreed(loaded.context, "AES128-SHA256", ssl.TLSVersion.TLSv1_2) == "AES128-SHA256"
    with pytest.raises(SetupError, match="tls_ciphers"):
        certificates(_settings(pair, tls_ciphers="nonsense"))


def test_a_renewed_certificate_that_is_not_valid_yet_waits_while_the_old_one_serves(authority: Authority) -> None:
    pair = authority.issue("server")
    loaded = certificates(_settings(pair))
    assert loaded is not None
    before = loaded.expires
    authority.issue("server", ends=61 * DAY)  # it begins tomorrow
    followed.reload()
    assert loaded.expires == before


def test_a_process_starts_with_a_certificate_that_is_not_valid_yet(authority: Authority) -> None:
    """Its host's clock may be behind until it has asked a time server."""
    assert certificates(_settings(authority.issue("server", ends=61 * DAY))) is not None
