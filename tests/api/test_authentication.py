"""Authentication over HTTP: before a body is read, limited for those who guess, and never needed by ramdisks."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from ferroscope.api.auth.configured import build_authentication
from ferroscope.config.errors import SetupError
from ferroscope.config.options import ApiSettings, MetricsSettings, PolicySettings, Settings
from ferroscope.core import credentials
from ferroscope.http_server.server import HttpServer, bind, check_anonymous
from ferroscope.runtime.system import SystemClock
from tests.api.service import Service
from tests.support import examples

SECRET = "a" * 43
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


def basic(user: str, password: str = "secret") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = tmp_path / "htpasswd"
    file.write_text(f"alice:{HASH}:admin\nbob:{HASH}\n")
    return file


@pytest.fixture
def service(sqlite_url: str, users: Path) -> Service:
    return Service(sqlite_url, auth_strategy="http_basic", http_basic_auth_user_file=str(users))


@pytest.fixture
def server(service: Service) -> Iterator[tuple[Service, int]]:
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    running = HttpServer(service.app, service.settings.api, [listener], decides=True)
    running.start()
    yield service, port
    running.stop(1)


def test_roles_of_users(service: Service) -> None:
    client = service.bare_metal
    assert client.get("/v1/nodes").status_code == 401
    assert client.get("/v1/nodes").headers["WWW-Authenticate"].startswith("Basic realm=")
    assert client.get("/v1/nodes", headers=basic("bob")).status_code == 200
    body = {"driver": "fake-hardware"}
    refused = client.post("/v1/nodes", body, headers=basic("bob"))
    assert refused.status_code == 403
    assert "baremetal:node:create" in refused.text
    assert client.post("/v1/nodes", body, headers=basic("alice")).status_code == 201
    assert client.get("/v1/nodes", headers=basic("alice", "wrong")).status_code == 401
    assert client.get("/v1/nodes", headers={"Authorization": "Digest x"}).status_code == 401
    assert service.introspection.get("/v1/introspection").status_code == 401


_SPELLINGS = (
    "/v1/nodes", "/nodes", "//v1/nodes", "/v1//nodes", "//nodes", "/v1/nodes/", "/nodes/detail", "/v1/%6eodes",
    "/v1%2fnodes", "/v1/nodes%2fdetail", "/v1/nodes/.", "/v1/./nodes", "/healthcheck/../v1/nodes", "/v1/nodes;x=1",
    "/v1/lookup/../nodes", "/%2e%2e/v1/nodes", "/v1/v1/nodes", "/v1/nodes%00", "/v1/continue_inspection/../nodes",
    "/v1/heartbeat/../nodes", "/v1/nodes#/healthcheck", "/healthcheck%2f..%2fv1%2fnodes", "/v1/nodes?/healthcheck",
)  # fmt: skip


def test_no_spelling_of_a_path_gets_around_its_policy(server: tuple[Service, int]) -> None:
    service, port = server
    service.store.write(lambda tx: tx.nodes.add(examples.node(name="hidden")))
    for path in _SPELLINGS:
        lines = (f"GET {path} HTTP/1.1", "Host: localhost", "X-OpenStack-Ironic-API-Version: 1.95", "Connection: close")
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall("\r\n".join((*lines, "", "")).encode())
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answer[:12] in (b"HTTP/1.1 401", b"HTTP/1.1 404"), (path, answer)
        assert b"hidden" not in answer, path


def test_no_header_makes_an_identity_but_credentials(service: Service) -> None:
    for headers in (
        {"X-Roles": "admin", "X-User-Id": "1", "X-Identity-Status": "Confirmed", "X-System-Scope": "all"},
        {"X-Forwarded-User": "alice", "X-Remote-User": "alice", "Remote-User": "alice"},
        {"Ferroscope.Client-Certificate": "alice", "SSL-Client-S-DN": "CN=alice", "X-SSL-Client-Verify": "SUCCESS"},
        {"Authorization": "Basic " + base64.b64encode(b"alice:secret\0").decode()},
        {"Authorization": "Bearer alice", "Cookie": "user=alice"},
    ):
        assert service.bare_metal.get("/v1/nodes", headers=headers).status_code == 401, headers


def test_an_access_token_is_accepted_with_its_roles(service: Service) -> None:
    text = credentials.token_text("0123456789ab", SECRET)
    token = examples.access_token(id="0123456789ab", roles=("reader",), digest=credentials.token_digest(SECRET))
    service.store.write(lambda tx: tx.access_tokens.add(token))
    for headers in ({"X-Auth-Token": text}, {"Authorization": f"Bearer {text}"}):
        assert service.bare_metal.get("/v1/nodes", headers=headers).status_code == 200
        refused = service.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, headers=headers)
        assert refused.status_code == 403
    assert service.bare_metal.get("/v1/nodes", headers={"X-Auth-Token": f"{text}x"}).status_code == 401


def test_an_error_of_the_introspection_api_has_its_form(service: Service) -> None:
    assert service.introspection.get("/v1/introspection").json["error"]["message"]


def test_ramdisks_and_health_need_no_credentials(service: Service) -> None:
    for path in ("/", "/v1", "/healthcheck", "/openapi.json"):
        assert service.bare_metal.get(path, headers=basic("nobody", "wrong")).status_code == 200, path
    assert service.bare_metal.get("/v1/lookup?addresses=52:54:00:00:00:01").status_code == 404
    assert service.bare_metal.post("/v1/continue_inspection", {"inventory": {}}).status_code == 400


def test_who_shares_an_address_with_an_attacker_logs_in_with_a_token_and_with_a_password(
    sqlite_url: str, users: Path
) -> None:
    service = Service(sqlite_url, auth_strategy="http_basic", http_basic_auth_user_file=str(users), failure_rate=0.001)
    token = examples.access_token("s" * 43)
    service.store.write(lambda tx: tx.access_tokens.add(token))
    bearer = {"Authorization": f"Bearer {credentials.token_text(token.id, 's' * 43)}"}

    def get(headers: dict[str, str]) -> int:
        return int(service.bare_metal.get("/v1/nodes", headers=headers, remote_addr="127.0.0.7").status_code)

    guesses = [get(basic(name, f"guess{n}")) for n in range(40) for name in ("alice", "root", "nobody", "admin")]
    assert guesses.count(401) <= 20 + 4 * 3
    assert guesses[-1] == 429
    assert [get({"X-Auth-Token": "fst_000000000000_" + "x" * 43}) for _ in range(30)] == [401] * 30
    assert get(bearer) == 200
    assert get(basic("bob")) == 200
    # An attacker who invents names leaves no tries for passwords; tokens do not care.
    assert [get(basic(f"name{n}", "x")) for n in range(60)].count(401) <= 20
    assert get(bearer) == get(basic("bob")) == 200


def _head(port: int, method: str, path: str, headers: dict[str, str]) -> socket.socket:
    """Send the header of a request."""
    one = socket.create_connection(("127.0.0.1", port), 30)
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    one.sendall("\r\n".join(lines).encode())
    one.settimeout(30)
    return one


def _all(one: socket.socket) -> bytes:
    data = b""
    while part := one.recv(65536):
        data += part
    return data


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "1000000"}, 401),
        ({"Content-Length": "1000000"} | basic("bob"), 403),
        ({"Transfer-Encoding": "chunked"} | basic("alice", "wrong"), 401),
        ({"Transfer-Encoding": "chunked", "Expect": "100-continue"}, 401),
    ],
)
def test_a_body_is_not_read_for_those_who_may_not_send_it(
    server: tuple[Service, int], headers: dict[str, str], status: int
) -> None:
    one = _head(server[1], "POST", "/v1/nodes", headers)
    with one:
        answer = _all(one)  # all of it, and the end of the connection, before a byte of the body was sent
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in answer.lower()
    assert (b"www-authenticate" in answer.lower()) is (status == 401)


def test_a_path_that_does_not_exist_needs_no_body(server: tuple[Service, int]) -> None:
    one = _head(server[1], "POST", "/v1/nowhere", {"Content-Length": "1000000"})
    with one:
        assert _all(one).startswith(b"HTTP/1.1 404 ")


def test_who_asks_before_sending_a_body_is_told_to_send_it_after_the_decision(server: tuple[Service, int]) -> None:
    body = b'{"driver": "fake-hardware"}'
    headers = basic("alice") | {"Content-Length": str(len(body)), "Expect": "100-continue", "Connection": "close"}
    one = _head(server[1], "POST", "/v1/nodes", headers)
    with one:
        assert one.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert _all(one).startswith(b"HTTP/1.1 201 ")


def test_a_body_over_the_limit_is_refused_after_authentication(server: tuple[Service, int]) -> None:
    for headers, status in ((basic("alice"), 413), ({}, 401)):
        one = _head(server[1], "POST", "/v1/nodes", headers | {"Content-Length": "9000000", "Expect": "100-continue"})
        with one:
            assert _all(one).startswith(f"HTTP/1.1 {status} ".encode())


def test_pipelined_requests_are_decided_one_after_the_other(server: tuple[Service, int]) -> None:
    body = b'{"driver": "fake-hardware"}'
    auth = "".join(f"{name}: {value}\r\n" for name, value in basic("alice").items()).encode()
    head = b"POST /v1/nodes HTTP/1.1\r\nHost: localhost\r\n" + auth + b"Content-Length: %d\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server[1]), 30) as one:
        one.settimeout(30)
        one.sendall(head + b"\r\n" + body + head + b"Connection: close\r\n\r\n" + body[:5])
        one.sendall(body[5:])
        assert _all(one).count(b"HTTP/1.1 201 ") == 2


# What a process refuses to start with.


def settings(**api: Any) -> Settings:
    return Settings(api=ApiSettings(**api))


def test_without_authentication_only_loopback_is_served() -> None:
    host = "0.0.0.0"
    open_to_all = settings(host=("localhost", host))
    with pytest.raises(SetupError) as refused:
        check_anonymous(open_to_all, api=True)
    for option in ("auth_strategy", "allow_anonymous"):
        assert option in refused.value.advice
    check_anonymous(open_to_all, api=False)
    check_anonymous(settings(host=(host,), bare_metal_port=0, introspection_port=0), api=True)
    check_anonymous(settings(host=(host,), allow_anonymous=True), api=True)
    check_anonymous(settings(host=(host,), auth_strategy="http_basic"), api=True)
    check_anonymous(settings(), api=True)


def test_metrics_without_authentication_are_served_on_loopback() -> None:
    with pytest.raises(SetupError):
        check_anonymous(Settings(metrics=MetricsSettings(host="::", port=9100)), api=False)
    check_anonymous(Settings(metrics=MetricsSettings(port=9100)), api=False)
    check_anonymous(Settings(metrics=MetricsSettings(host="::")), api=False)


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), ("alice:secret\n", "line 1")])
def test_a_user_file_that_cannot_be_used_is_an_error_of_the_start(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "users"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    broken = settings(auth_strategy="http_basic", http_basic_auth_user_file=str(file))
    with pytest.raises(SetupError, match=reason) as refused:
        build_authentication(broken, SystemClock())
    assert "secret" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_keystone_without_its_options_is_an_error_of_the_start() -> None:
    with pytest.raises(SetupError, match="auth_url"):
        build_authentication(settings(auth_strategy="keystone"), SystemClock())


def test_a_policy_closes_metrics(sqlite_url: str, users: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('"public_api": "role:reader"\n')
    service = Service(
        sqlite_url,
        sections={"oslo_policy": PolicySettings(policy_file=str(file))},
        auth_strategy="http_basic",
        http_basic_auth_user_file=str(users),
    )
    assert service.bare_metal.get("/openapi.json").status_code == 401
    assert service.bare_metal.get("/openapi.json", headers=basic("bob")).status_code == 200


def test_those_who_guess_wait_and_those_who_know_do_not(sqlite_url: str, users: Path) -> None:
    service = Service(sqlite_url, auth_strategy="http_basic", http_basic_auth_user_file=str(users), failure_rate=0.0001)

    def get(user: str, password: str = "secret") -> Any:
        return service.bare_metal.get("/v1/nodes", headers=basic(user, password), remote_addr="192.0.2.7")

    assert get("bob").status_code == 200
    statuses = [get("alice", f"guess{n}").status_code for n in range(22)]
    assert statuses == [401] * 20 + [429] * 2
    refused = get("alice", "guess")
    assert int(refused.headers["Retry-After"]) >= 1
    # A right password that was not used before is one more guess at this name; those in use go on.
    assert get("alice").status_code == 429
    assert get("bob").status_code == 200
    # To repeat a wrong password is no guess, and the answer says what is wrong.
    assert get("alice", "guess1").status_code == 401
    # Without credentials nothing is guessed.
    assert service.bare_metal.get("/v1/nodes", remote_addr="192.0.2.7").status_code == 401
