"""The addresses of BMCs when the name server does not answer: nobody waits for long, and one thread does."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import Any, Final

import pytest

from ferroscope.core.model import Node
from ferroscope.remote.addresses import MAX_LOOKUPS, Networks, UnresolvedError, resolve
from ferroscope.worker.start import resolve_addresses
from tests.support.processes import PATIENCE

# A BMC at a link-local address of a network of its own; says which host it was called.
_LINK_LOCAL: Final = """
import socket, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ferroscope.remote.addresses import Networks
from ferroscope.remote.calls import Deadline
from ferroscope.remote.session import BoundedSession

class Bmc(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6

server = Server(("fe80::9%lo", 8000, 0, socket.if_nametoindex("lo")), Bmc)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://[fe80::9{sys.argv[1]}lo]:8000"
with Deadline(30), BoundedSession(url, allowed=Networks(["fe80::/10"])) as session:
    answer = session.get(f"{url}/redfish/v1/")
    print(answer.text, session.belongs(answer.url))
"""


def addresses(**info: Any) -> frozenset[str]:
    return resolve_addresses(Node(uuid="x", driver="redfish", driver_info=info), seconds=0.2)


def test_a_name_server_that_never_answers_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked = threading.Event(), []

    def hang(host: str, *_rest: object, **_more: object) -> list[Any]:
        asked.append(host)
        answered.wait(PATIENCE)
        return []

    monkeypatch.setattr("ferroscope.remote.addresses.socket.getaddrinfo", hang)
    try:
        assert addresses(redfish_address="slow.example") == {"slow.example"}
        assert addresses(redfish_address="slow.example") == {"slow.example"}
        assert not answered.is_set()
    finally:
        answered.set()
    assert asked == ["slow.example"]


def test_names_of_bmcs_that_nobody_resolves_leave_lookups_for_those_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()

    def hang(host: str, *_: Any, **__: Any) -> list[Any]:
        if host.endswith(".attacker.example"):
            answered.wait(PATIENCE)
            raise OSError("no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr("ferroscope.remote.addresses.socket.getaddrinfo", hang)
    bmcs = Networks(guarded=True)
    try:
        for number in range(MAX_LOOKUPS):
            addresses(redfish_address=f"{number}.attacker.example")
            with pytest.raises(UnresolvedError):
                resolve(f"other-{number}.attacker.example", 0.0, bmcs)
        assert resolve("webhook.example.org", PATIENCE) == ("192.0.2.1",)
    finally:
        answered.set()


@pytest.mark.parametrize("mark", ["%25", "%"])
def test_a_bmc_is_reached_at_a_link_local_address_through_the_interface_in_its_url(mark: str) -> None:
    network = "ip link set lo up && ip addr add fe80::9/64 dev lo nodad"
    called = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", f'{network} && exec "$@"', "-",
         sys.executable, "-c", _LINK_LOCAL, mark],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert called.stdout == "[fe80::9]:8000 True\n", called.stderr
