"""``ferroscope bmc scan``: it finds the emulated BMCs on loopback, and nothing at such an address does it harm."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.options import DriverSettings, Settings
from ferroscope.contrib.dcim.bmc_scan import probe
from ferroscope.contrib.dcim.bmc_scan.probe import IpmiAnswer, RedfishRoot
from ferroscope.runtime.externals import build_drivers
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support import ipmi as ipmi_sim
from tests.support.bad_server import a_server_that, one_by_one
from tests.support.redfish import PASSWORD, USER, Emulator, emulator, mac, self_signed, system_uuid
from tests.system.cli.console import Shell

Switch = Any


@pytest.fixture
def shell(sqlite_url: str, listener: tuple[Switch, str]) -> Iterator[Shell]:
    """Give the command line before a service with the drivers of real BMCs."""
    offered = DriverSettings(enabled=("redfish", "ipmi"), bmc_networks=("127.0.0.0/8",))
    drivers = build_drivers(Settings(drivers=offered))
    served = Service(sqlite_url, drivers=drivers)
    listener[0].app = served.app
    yield Shell(listener[1])
    listener[0].app = None
    served.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]) -> Iterator[Emulator]:
    with emulator(tmp_path_factory.mktemp("rack"), machines=2, certificate=certificate) as running:
        yield running


@pytest.fixture
def configured(tmp_path: Path, certificate: tuple[Path, Path]) -> list[str]:
    """Return the options for this host's configuration, which has the password's source, and for credentials."""
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "bmc").write_text(PASSWORD)
    (secrets / "bmc").chmod(0o600)
    file = tmp_path / "scan.conf"
    file.write_text(
        f"[secrets]\nsources = file\nfile_directory = {secrets}\n[drivers]\nca_directory = {certificate[0].parent}\n"
        "bmc_networks = 127.0.0.0/8\n"
    )
    return ["-c", str(file), "--username", USER, "--reference", "secret://file/bmc", "--verify-ca", "bmc.pem"]


def port_of(rack: Emulator) -> str:
    return rack.url.rpartition(":")[2]


def scan(shell: Shell, *words: str, check: int = 0) -> list[dict[str, Any]]:
    quick = ("--timeout", "1.5", "--rate", "1000")
    found: list[dict[str, Any]] = shell.json("bmc", "scan", *words, *quick, check=check)
    return found


def test_a_redfish_service_is_found_with_its_machines_which_are_approved_from_the_inbox(
    shell: Shell, rack: Emulator, configured: list[str]
) -> None:
    words = ["127.0.0.0/29", "--redfish-port", port_of(rack), *configured, "--label", "rack=r1"]
    planned = scan(shell, *words, "--dry-run")
    assert [one["result"] for one in planned] == ["would be added"] * 2
    assert shell.json("node", "list") == []
    found = scan(shell, *words)
    assert [one["result"] for one in found] == ["in the inbox"] * 2
    assert {one["address"] for one in found} == {"127.0.0.1"}
    assert sorted(one["macs"] for one in found) == [[mac(number), mac(number, 1)] for number in (0, 1)]
    assert PASSWORD not in json.dumps([planned, found])
    again = scan(shell, *words)
    assert sorted(one["node"] for one in again) == sorted(one["node"] for one in found)
    assert [one["result"] for one in again] == ["known"] * 2
    waiting = shell.json("node", "inbox")
    assert {one["uuid"] for one in waiting} == {one["node"] for one in found}
    shell("node", "approve", "-l", "rack=r1", "--yes", check=0)
    nodes = [shell.json("node", "show", one["node"]) for one in found]
    assert {node["driver_info"]["redfish_system_id"] for node in nodes} == {
        f"/redfish/v1/Systems/{system_uuid(number)}" for number in (0, 1)
    }
    assert {node["driver_info"]["redfish_password"] for node in nodes} == {"******"}
    assert not any(node["inbox"] for node in nodes)
    assert all(node["hardware"]["memory"] == 96 * 2**30 for node in nodes)


def test_without_credentials_none_are_sent_and_the_service_is_still_found(shell: Shell, rack: Emulator) -> None:
    found = scan(shell, "127.0.0.1/32", "--redfish-port", port_of(rack))
    assert [(one["protocol"][:7], one["macs"], one["result"]) for one in found] == [("Redfish", [], "in the inbox")]


def test_a_certificate_that_is_not_trusted_gets_no_password(
    shell: Shell, rack: Emulator, configured: list[str]
) -> None:
    untrusted = [*configured[:-2], "--verify-ca", "true"]
    (found,) = scan(shell, "127.0.0.1/32", "--redfish-port", port_of(rack), *untrusted)
    assert (found["macs"], found["result"]) == ([], "in the inbox")
    assert "certificate" in found["detail"]


def test_a_bmc_that_speaks_ipmi_is_found_where_it_listens(shell: Shell, tmp_path: Path) -> None:
    with ipmi_sim.simulator(tmp_path / "bmc", address="127.0.0.3") as running:
        words = ("127.0.0.0/29", "--ipmi-port", str(running.port), "--redfish-port", "9")
        (found,) = scan(shell, *words)
        assert (found["address"], found["protocol"], found["result"]) == ("127.0.0.3", "IPMI 2.0", "in the inbox")
        node = shell.json("node", "show", found["node"])
        assert (node["driver"], node["driver_info"]) == (
            "ipmi",
            {"ipmi_address": "127.0.0.3", "ipmi_port": running.port},
        )
        assert [one["result"] for one in scan(shell, *words)] == ["known"]


@pytest.mark.parametrize(
    "words",
    [
        ("8.8.8.0/30",), ("192.0.2.1/24",), ("127.0.0.0/8",), ("224.0.0.0/30",), ("nonsense",), ("::/0",), (),
        ("127.0.0.1", "--username", "root"), ("127.0.0.1", "--username", "root", "--reference", "plain"),
        ("127.0.0.0/30", "--max-addresses", "3"),
    ],
)  # fmt: skip
def test_what_must_not_be_scanned_is_refused_and_nothing_is_sent(shell: Shell, words: tuple[str, ...]) -> None:
    shell("bmc", "scan", *words, check=Exit.USAGE)


def test_networks_outside_of_those_of_bmcs_are_refused(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "scan.conf"
    file.write_text("[drivers]\nbmc_networks = 127.0.1.0/24\n")
    shell("bmc", "scan", "127.0.0.1/32", "-c", str(file), check=Exit.USAGE)
    assert scan(shell, "127.0.1.0/30", "-c", str(file), "--redfish-port", "9", "--ipmi-port", "9") == []


@contextlib.contextmanager
def over_tls(certificate: tuple[Path, Path], answer: Iterable[bytes], pause: float = 0.0) -> Iterator[int]:
    """Give the port of a TLS server that sends these pieces."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                plain, _ = listener.accept()
                with plain, context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(4096)
                    for piece in answer:
                        connection.sendall(piece)
                        over.wait(pause)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


ROOT = b'{"RedfishVersion": "1.6.0", "Vendor": "Ven\\u001b[2Jdor", "Product": 7, "UUID": ""}'


def response(body: bytes, *, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n" % len(body) + headers + b"\r\n" + body


def test_a_service_root_is_read_and_its_texts_are_harmless(certificate: tuple[Path, Path]) -> None:
    with over_tls(certificate, [response(ROOT)]) as port:
        assert probe.redfish("127.0.0.1", port, 5) == RedfishRoot("1.6.0", "Ven\\x1b[2Jdor")


@pytest.mark.parametrize(
    "answer",
    [
        response(b"[1]"),
        response(b"{}"),
        response(b"{"),
        response(b"[" * 60_000),
        response(b"x" * 100_000),
        response(b"", status=b"302 Found", headers=b"Location: https://127.0.0.9/redfish/v1/\r\n"),
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
        b"",
    ],
)
def test_what_is_no_redfish_service_is_said_to_be_none(certificate: tuple[Path, Path], answer: bytes) -> None:
    with over_tls(certificate, [answer]) as port:
        found = probe.redfish("127.0.0.1", port, 5)
    assert isinstance(found, str)
    assert found


def test_a_server_without_tls_or_without_haste_costs_its_time_only(certificate: tuple[Path, Path]) -> None:
    with a_server_that([b"HTTP/1.1 200 OK\r\n\r\n"]) as port:
        assert isinstance(probe.redfish("127.0.0.1", int(port), 5), str)
    with a_server_that([]) as port:
        assert probe.redfish("127.0.0.1", int(port), 0.3) == "no answer within 0.3 s"
    with over_tls(certificate, one_by_one(response(ROOT)), pause=0.05) as port:
        assert probe.redfish("127.0.0.1", int(port), 0.5) == "no answer within 0.5 s"


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_an_address_that_answers_but_not_as_redfish_is_a_row_with_its_reason(
    shell: Shell, certificate: tuple[Path, Path], dry_run: list[str]
) -> None:
    """A BMC that just got power answers 503, a busy one late, and a printer is none: whoever misses one must see it."""
    with over_tls(certificate, [response(b"", status=b"503 Service Unavailable")]) as port:
        words = ("127.0.0.0/30", "--redfish-port", str(port), "--ipmi-port", "9", *dry_run)
        (found,) = scan(shell, *words)
        assert (found["address"], found["result"], found["node"]) == ("127.0.0.1", "not Redfish", None)
        assert "HTTP 503" in found["detail"]
        assert shell("bmc", "scan", *words, check=0).output.splitlines()[-1] == "4 addresses scanned: 1 not Redfish"
        assert shell.json("node", "inbox") == []
        address = f"redfish_address=https://127.0.0.1:{port}"
        shell("node", "create", "busy", "--driver", "redfish", "-d", address, check=0)
        (known,) = scan(shell, *words)
        assert (known["result"], known["node"], "HTTP 503" in known["detail"]) == ("known", "busy", True)


def a_udp_server(answer: Callable[[bytes], bytes]) -> contextlib.AbstractContextManager[int]:
    @contextlib.contextmanager
    def running() -> Iterator[int]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.bind(("127.0.0.1", 0))
            channel.settimeout(0.1)
            over = threading.Event()

            def serve() -> None:
                while not over.is_set():
                    with contextlib.suppress(OSError):
                        packet, peer = channel.recvfrom(1024)
                        channel.sendto(answer(packet), peer)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield channel.getsockname()[1]
            finally:
                over.set()
                thread.join()

    return running()


@pytest.mark.parametrize("answer", [lambda packet: packet, lambda _: b"", lambda packet: packet[:4] + bytes(60)])
def test_a_udp_service_that_is_no_bmc_is_none(answer: Callable[[bytes], bytes]) -> None:
    with a_udp_server(answer) as port:
        assert probe.ipmi("127.0.0.1", port, 0.4) is None


def test_a_bmc_that_only_answers_the_ping_is_found() -> None:
    pong = bytes.fromhex("0600ff06000011be40000010 000011be00000000 81 000000000000".replace(" ", ""))
    with a_udp_server(lambda _packet: pong) as port:
        assert probe.ipmi("127.0.0.1", port, 0.4) == IpmiAnswer()
