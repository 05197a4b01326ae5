"""The client's manners when the service is away, late, wrong or somebody else."""

from __future__ import annotations

import pytest

from ferroscope_client.client import Client, ServiceError, ServiceUnreachableError
from ferroscope_client.errors import Exit, Failure
from tests.support.processes import free_port
from tests.system.cli.console import Shell
from tests.system.cli.scripted import HANG_UP, Answer, Serve

OK: Answer = (200, {}, b'{"ok": true}')
BUSY: Answer = (503, {"Retry-After": "0"}, b'{"error_message": "{\\"faultstring\\": \\"the database is away\\"}"}')


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_may_be_spelled_with_or_without_the_version(serve: Serve, suffix: str) -> None:
    server = serve(OK)
    Client(server.url + suffix).get("/v1/nodes")
    assert server.asked[0][1] == "/v1/nodes"


def test_a_busy_service_is_asked_again(serve: Serve) -> None:
    server = serve(BUSY, BUSY, OK)
    assert Client(server.url).put("/v1/nodes/n1/states/power", {"target": "power on"}) == {"ok": True}
    assert [ask[3] for ask in server.asked] == [b'{"target":"power on"}'] * 3


def test_a_service_that_stays_busy_is_reported_as_out_of_reach(serve: Serve) -> None:
    with pytest.raises(ServiceError) as failure:
        Client(serve(BUSY).url, patience=0.0).get("/v1/nodes")
    assert failure.value.exit_code == Exit.UNREACHABLE
    assert failure.value.message == "the database is away", "what helps is in the message of the API"
    assert not failure.value.advice


def test_a_read_whose_connection_breaks_is_repeated(serve: Serve) -> None:
    server = serve(HANG_UP, OK)
    assert Client(server.url).get("/v1/nodes") == {"ok": True}


def test_a_write_whose_connection_breaks_is_not_repeated(serve: Serve) -> None:
    server = serve(HANG_UP, OK)
    with pytest.raises(ServiceUnreachableError, match="without answering"):
        Client(server.url).post("/v1/nodes", {"driver": "fake"})
    assert len(server.asked) == 1


def test_a_change_waits_for_a_service_that_is_restarted_but_not_for_one_that_is_not_there(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    before = serve(OK, HANG_UP)
    api = Client(before.url)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            serve(OK, port=int(before.url.rpartition(":")[2]))

    monkeypatch.setattr("ferroscope_client.client.time.sleep", pause)
    with pytest.raises(ServiceUnreachableError):
        Client(f"http://127.0.0.1:{free_port()}").post("/v1/nodes", {"driver": "fake"})
    assert pauses == []
    api.get("/v1/")
    with pytest.raises(ServiceUnreachableError):  # the service may have got it
        api.post("/v1/nodes", {"driver": "fake"})
    before.close()
    assert pauses == []
    assert api.post("/v1/nodes", {"driver": "fake"}) == {"ok": True}
    assert len(pauses) == 2


def test_changes_fail_at_once_after_one_has_waited_for_the_service_in_vain(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    server = serve((200, {"Connection": "close"}, b"{}"))
    api = Client(server.url, patience=15.0)
    api.get("/v1/")
    server.close()
    monkeypatch.setattr("ferroscope_client.client.time.sleep", lambda seconds: now.append(now[-1] + seconds))
    monkeypatch.setattr("ferroscope_client.client.time.monotonic", lambda: now[-1])
    for waited in (15.0, 15.0):
        with pytest.raises(ServiceUnreachableError):
            api.post("/v1/nodes", {"driver": "fake"})
        assert now[-1] == waited


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b'{"error_message": "{\\"faultcode\\": \\"Client\\", \\"faultstring\\": \\"no such field\\"}"}',
            "no such field",
        ),
        (b'{"error_message": {"faultstring": "no such field"}}', "no such field"),
        (b'{"error": {"message": "no such field"}}', "no such field"),
        (b"<html>Bad Request</html>", "unexpected response: HTTP 400 Bad Request"),
        (b'["?"]', "unexpected response: HTTP 400 Bad Request"),
        (b"\xff", "unexpected response: HTTP 400 Bad Request"),
        (b"", "unexpected response: HTTP 400 Bad Request"),
    ],
)
def test_the_message_of_an_error_is_found_in_any_form(serve: Serve, body: bytes, message: str) -> None:
    with pytest.raises(ServiceError) as failure:
        Client(serve((400, {}, body)).url).get("/v1/nodes")
    assert (failure.value.status, failure.value.message) == (400, message)


def test_somebody_else_at_that_address_is_recognized(serve: Serve) -> None:
    with pytest.raises(Failure) as failure:
        Client(serve((200, {}, b"<html>Welcome to nginx</html>")).url).get("/v1/")
    assert "not JSON" in failure.value.message
    assert "6385" in failure.value.advice


def test_the_newest_microversion_is_asked_for(serve: Serve) -> None:
    server = serve(OK)
    Client(server.url).get("/v1/nodes", fields=("uuid", "name"), maintenance=True, owner=None, name="a b&c")
    _, path, headers, _ = server.asked[0]
    assert headers["X-OpenStack-Ironic-API-Version"] == "latest"
    assert path == "/v1/nodes?fields=uuid%2Cname&maintenance=true&name=a+b%26c"


def test_pages_are_followed_until_the_last(serve: Serve) -> None:
    server = serve(
        (200, {}, b'{"nodes": [{"uuid": "1"}, {"uuid": "2"}], "next": "http://elsewhere/"}'),
        (200, {}, b'{"nodes": [{"uuid": "3"}]}'),
    )
    assert [node["uuid"] for node in Client(server.url).pages("/v1/nodes", "nodes", driver="sim")] == ["1", "2", "3"]
    assert [ask[1] for ask in server.asked] == ["/v1/nodes?driver=sim", "/v1/nodes?marker=2&driver=sim"]


@pytest.mark.parametrize("body", [b'{"versions": []}', b"[]", b'"hello"'])
def test_the_status_of_another_service_is_reported_as_such(serve: Serve, body: bytes) -> None:
    result = Shell(serve((200, {}, body)).url)("status", check=Exit.FAILURE)
    assert "6385" in result.stderr
