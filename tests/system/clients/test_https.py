"""The published clients over HTTPS: they verify the service, and may prove with a certificate who they are."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.installation import configuration
from tests.support.processes import free_port, until
from tests.system.clients.environment import Clients, Done


class Https:
    """A service with a certificate for 127.0.0.1."""

    def __init__(self, directory: Path, clients: Clients, wanted: str) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self._clients = clients
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        config = directory / "ferroscope.conf"
        pair = self.authority.issue("server")
        tls = f"tls_certificate_file = {pair.certificate}\ntls_key_file = {pair.key}\n"
        tls += f"tls_client_certificates = {wanted}\ntls_client_ca_file = {self.authority.ca}\n"
        more = f"[api]\n{tls}[drivers]\nenabled = fake-hardware\n"
        config.write_text(configuration(directory, self.port, more))
        command = [sys.executable, "-m", "ferroscope", "all", "-c", str(config)]
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def baremetal(self, *words: str, ca: Path | None = None, more: tuple[str, ...] = ()) -> Done:
        endpoint = ("--os-auth-type", "none", "--os-endpoint", self.url, "--max-retries", "0")
        trusted = ("--os-cacert", str(ca or self.authority.ca))
        return self._clients.command("baremetal", *endpoint, *trusted, *more, *words).done()


@pytest.fixture
def https(request: pytest.FixtureRequest, tmp_path: Path, clients: Clients) -> Iterator[Https]:
    """Give a running service; the parameter is the option tls_client_certificates."""
    service = Https(tmp_path, clients, request.param)
    try:
        assert until(lambda: service.process.poll() is not None or " ready" in service.log)
        assert service.process.poll() is None, service.log
        yield service
    finally:
        service.process.kill()
        service.process.wait()


@pytest.mark.parametrize("https", ["off"], indirect=True)
def test_a_client_works_if_it_trusts_the_authority_and_only_then(https: Https, tmp_path: Path) -> None:
    done = https.baremetal("node", "create", "--driver", "fake-hardware", "--name", "rack1", "-f", "json")
    assert done.code == 0, done.err
    assert [node["name"] for node in https.baremetal("node", "list", "-f", "json").json()] == ["rack1"]
    (tmp_path / "other").mkdir()
    done = https.baremetal("node", "list", ca=Authority(tmp_path / "other").ca)
    assert done.code != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.err


@pytest.mark.parametrize("https", ["off"], indirect=True)
def test_links_are_https_and_the_command_line_uses_the_hosts_authorities(https: Https) -> None:
    context = ssl.create_default_context(cafile=str(https.authority.ca))
    with urllib.request.urlopen(f"{https.url}/v1", context=context) as answer:
        assert f'"{https.url}/v1/' in answer.read().decode()
        assert answer.headers["Strict-Transport-Security"]
    trusting = os.environ | {"SSL_CERT_FILE": str(https.authority.ca)}
    command = [sys.executable, "-m", "ferroscope", "node", "list", "--url", https.url]
    done = subprocess.run(command, env=trusting, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("https", ["required"], indirect=True)
def test_a_client_without_a_certificate_is_rejected_if_one_is_required(https: Https) -> None:
    client = https.authority.issue("alice")
    identity = ("--os-cert", str(client.certificate), "--os-key", str(client.key))
    done = https.baremetal("node", "list", more=identity)
    assert done.code == 0, done.err
    assert https.baremetal("node", "list").code != 0
