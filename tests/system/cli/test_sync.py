"""``ferroscope sync``: what is refused before anything is written, and how a server that misbehaves is treated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from ferroscope.contrib.dcim.dialects import DIALECTS, NETBOX, DcimDialect
from ferroscope.contrib.dcim.rest import DcimError, RestClient
from ferroscope_client.errors import Exit
from tests.support.processes import free_port
from tests.system.cli.console import Shell
from tests.system.cli.scripted import HANG_UP, Answer, ScriptedServer

TOKEN = "Canary-5d"
AGAIN: Answer = (429, {"Retry-After": "0"}, b"{}")


def command(dialect: DcimDialect, url: str, *options: str) -> list[str]:
    name = dialect.name.lower()
    return ["sync", name, f"--{name}-url", url, f"--{dialect.place}", "lab", "--role", "Server", *options]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("dcim.example.org", None),
        ("http://dcim.example.org", None),
        ("https://dcim.example.org", TOKEN),
        ("https://dcim.example.org", "secret://env/HOME"),
        ("https://dcim.example.org", "secret://file/no/such/file"),
        ("https://dcim.example.org", "secret://vault/x"),
    ],
)
def test_a_wrong_url_or_token_is_a_usage_error(shell: Shell, dialect: DcimDialect, url: str, token: str | None) -> None:
    options = [f"--{dialect.name.lower()}-token", token] if token else []
    assert TOKEN not in shell(*command(dialect, url, *options), check=Exit.USAGE).output


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_dcim_that_does_not_answer_is_a_failure(
    shell: Shell, dialect: DcimDialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{dialect.name.upper()}_TOKEN", TOKEN)
    url = f"http://127.0.0.1:{free_port()}"
    assert TOKEN not in shell(*command(dialect, url), check=Exit.FAILURE).output


@pytest.fixture
def script() -> Iterator[Callable[..., tuple[RestClient, ScriptedServer]]]:
    """Give a function that starts a server with these answers, and returns a client of it."""
    servers = []

    def start(*answers: Answer, tries: int = 3) -> tuple[RestClient, ScriptedServer]:
        servers.append(ScriptedServer(*answers))
        client = RestClient(servers[-1].url, TOKEN, NETBOX, threading.Event(), seconds=5, tries=tries)
        return client, servers[-1]

    yield start
    for server in servers:
        server.close()


def _status(**versions: str) -> Answer:
    return 200, {}, msgspec.json.encode({name.replace("_", "-"): version for name, version in versions.items()})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_status(nautobot_version="3.2.7"), "Nautobot 3.2.7"),
        (_status(netbox_version="4.1.11"), "4.2"),
        (_status(**{"some-version": "1"}), "/api/status/"),
        ((200, {}, b"<html>a printer</html>"), "JSON"),
        ((404, {}, b""), "404"),
        ((403, {}, b'{"detail": "Invalid token Canary-5d"}'), "403"),
        ((301, {"Location": "https://elsewhere.example.org/"}, b""), "301"),
    ],
)
def test_a_server_that_is_not_the_expected_one_is_reported(
    script: Callable[..., tuple[RestClient, ScriptedServer]], answer: Answer, said: str
) -> None:
    client, server = script(answer)
    with pytest.raises(DcimError) as error:
        client.check()
    assert said in str(error.value)
    assert TOKEN not in str(error.value)
    assert len(server.asked) == 1


def test_the_expected_version_is_accepted(script: Callable[..., tuple[RestClient, ScriptedServer]]) -> None:
    client, server = script(_status(netbox_version="4.10.0-Docker-3.5"))
    client.check()
    assert server.asked[0][2]["Authorization"] == f"Token {TOKEN}"


@pytest.mark.parametrize("answer", [AGAIN, (503, {}, b"")])
def test_what_was_not_carried_out_is_tried_again(
    script: Callable[..., tuple[RestClient, ScriptedServer]], answer: Answer
) -> None:
    client, server = script(answer, (201, {}, b'[{"id": 7}]'))
    assert client.create("dcim/devices", [{}]) == [{"id": 7}]
    assert len(server.asked) == 2


@pytest.mark.parametrize("answer", [HANG_UP, (502, {}, b""), (500, {}, b"")])
def test_only_a_creation_that_may_have_happened_is_not_tried_again(
    script: Callable[..., tuple[RestClient, ScriptedServer]], answer: Answer
) -> None:
    client, server = script(answer, (200, {}, b'[{"id": 7}]'))
    assert client.update("dcim/devices", [{"id": 7}]) == [{"id": 7}]
    client, server = script(answer, (200, {}, b'[{"id": 7}]'))
    with pytest.raises(DcimError):
        client.create("dcim/devices", [{}])
    assert len(server.asked) == 1


def test_tries_end(script: Callable[..., tuple[RestClient, ScriptedServer]]) -> None:
    client, server = script(AGAIN)
    with pytest.raises(DcimError) as error:
        client.create("dcim/devices", [{}])
    assert error.value.status == 429
    assert len(server.asked) == 3


def test_of_objects_that_were_refused_together_each_is_tried_alone(
    script: Callable[..., tuple[RestClient, ScriptedServer]],
) -> None:
    refused: Answer = (400, {}, b'{"name": ["too long"]}')
    client, server = script(refused, (201, {}, b'[{"id": 7}]'), refused)
    first, second = client.create("dcim/devices", [{}, {}])
    assert first == {"id": 7}
    assert isinstance(second, DcimError)
    assert len(server.asked) == 3


def test_a_creation_is_sent_on_a_connection_of_its_own(
    script: Callable[..., tuple[RestClient, ScriptedServer]],
) -> None:
    client, server = script((200, {}, b'[{"id": 7}]'))
    for _ in range(2):
        client.update("dcim/devices", [{"id": 7}])
        client.create("dcim/devices", [{}])
    updates, creations = [[port for method, port in server.ports if method == one] for one in ("PATCH", "POST")]
    assert len(set(creations)) == 2
    assert creations[0] not in updates[:1]
