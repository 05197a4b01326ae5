"""Which names a request may be for: those of this service, and addresses, which cannot be rebound."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from pathlib import Path

import falcon
import falcon.testing
import pytest

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import arrivals
from ferroscope.api.http.arrivals import Arrivals, Hosts, MisdirectedError, known_names
from ferroscope.config.options import ApiSettings, BootSettings, InspectorSettings, Settings
from ferroscope.http_server.limits import TrustedProxies
from tests.support.rows import each

_SETTINGS = Settings(
    api=ApiSettings(
        host=("localhost", "api.listen.example"),
        public_url="https://api.example.org:6385/base",
        allowed_hosts=("Balancer.Example.Org", ".internal.example"),
    ),
    inspector=InspectorSettings(callback_endpoint_override="http://boot.example.org"),
    boot=BootSettings(callback_url="http://ramdisks.example.org:6385/v1/continue_inspection"),
)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hosts:
    """Return the names of a service on the host rack1, which /etc/hosts knows by two more."""
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n127.0.1.1 rack1.example.net rack1 # us\n127.0.0.1 tracker.example\n")
    monkeypatch.setattr(arrivals, "_HOSTS_FILE", file)
    monkeypatch.setattr(socket, "gethostname", lambda: "rack1")
    return Hosts(known_names(_SETTINGS))


@pytest.mark.parametrize(
    "header",
    [
        "", "localhost", "LOCALHOST:6385", "localhost.", "127.0.0.1:6385", "192.0.2.7", "[::1]:6385",
        "[fe80::1%25eth0]", "rack1", "rack1.example.net:5050", "api.listen.example", "api.example.org",
        "balancer.example.org:443",
        "a.internal.example", "boot.example.org", "ramdisks.example.org:6385", ":6385",
    ],
)  # fmt: skip
def test_addresses_and_own_names_are_accepted(names: Hosts, header: str) -> None:
    names.check(header)


@pytest.mark.parametrize(
    "header",
    [
        "evil.example", "evil.example:6385", "localhost.evil.example", "rack1.evil.example", "127.0.0.1.evil.example",
        "tracker.example", "internal.example", "xinternal.example", "evil-api.example.org", "0x7f.1", "2130706433",
    ],
)  # fmt: skip
def test_other_names_are_rejected(names: Hosts, header: str) -> None:
    with pytest.raises(MisdirectedError) as raised:
        names.check(header)
    assert "allowed_hosts" in raised.value.message


@each("header", ["a b", "[::1", "a/b", "user@localhost", "x" * 300])
def test_what_is_no_host_is_rejected_even_if_any_name_is_allowed(header: str) -> None:
    with pytest.raises(BadRequestError):
        Hosts(["*"]).check(header)


def test_any_name_is_accepted_if_the_operator_says_so() -> None:
    Hosts(["*"]).check("evil.example")


def test_an_invalid_url_does_not_stop_the_check() -> None:
    checked = Hosts(known_names(Settings(api=ApiSettings(public_url="http://[::1"))))
    checked.check("localhost")


@pytest.mark.parametrize(
    ("version", "host", "path", "accepted"),
    [
        ("1.1", "", "/v1/nodes", False),
        ("1.1", None, "/v1/nodes", False),
        ("1.1", "localhost", "/v1/nodes", True),
        ("1.0", "", "/v1/nodes", True),
        ("1.0", None, "/v1/nodes", True),
        ("1.1", "", "/v1/media/boot.iso", True),
        ("1.1", None, "/v1/media/boot.iso", True),
    ],
)
def test_http_1_1_needs_a_host_but_for_the_images_of_bmcs(
    names: Hosts, version: str, host: str | None, path: str, *, accepted: bool
) -> None:
    environ = falcon.testing.create_environ(path, http_version=version)
    environ.pop("HTTP_HOST", None)
    if host is not None:
        environ["HTTP_HOST"] = host
    call = falcon.Request(environ)
    with nullcontext() if accepted else pytest.raises(BadRequestError, match="missing or empty"):
        Arrivals(str, names, TrustedProxies(), ()).process_request(call, falcon.Response())
