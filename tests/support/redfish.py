"""sushy-tools' Redfish emulator with a rack of machines, as a process of its own.

It needs ``.emulators-venv`` (``tools/setup.sh emulators``); a missing one is an error, for a skipped test
proves nothing. The account is ``USER`` with ``PASSWORD``, which tests look for where it must not be.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ferroscope.core.model import Node
from tests import ROOT
from tests.support.installation import running
from tests.support.processes import PATIENCE, free_port

ENVIRONMENT: Final = ROOT / ".emulators-venv"
USER: Final = "operator"
PASSWORD: Final = "pa55-of-the-BMC"
# bcrypt of PASSWORD, with the least work that it knows: a hash that protects nothing.
HTPASSWD: Final = "operator:$2b$04$Jmkka0JBn/scNi0/j4GlXeLFxUdWPke/43J..vxFQ20owuN5t0Xzm\n"
AUTHORIZATION: Final = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def system_uuid(number: int) -> str:
    """Return the UUID of the machine with this number, counted from 0."""
    return f"5c0be000-0000-4000-8000-{number:012x}"


def mac(number: int, nic: int = 0) -> str:
    """Return the MAC of a NIC of a machine."""
    return f"52:54:00:{number:02x}:00:{nic:02x}"


def machine(number: int) -> dict[str, Any]:
    """Return one machine in the emulator's terms: two NICs, two processors, 96 GiB, two drives."""
    return {
        "uuid": system_uuid(number),
        "name": f"machine-{number}",
        "power_state": "Off",
        "external_notifier": False,
        "nics": [{"mac": mac(number), "ip": ""}, {"mac": mac(number, 1), "ip": ""}],
        "memory_gib": 96,
        "processors": [
            {
                "id": f"CPU{socket}",
                "socket": f"CPU {socket}",
                "vendor": "Intel",
                "model": "Xeon",
                "cores": 8,
                "threads": 16,
            }
            for socket in (1, 2)
        ],
        "bios_version": "2.19.1",
        "drives": [
            {"Id": f"disk{bay}", "Name": f"Disk {bay}", "CapacityBytes": 899527000000, "Protocol": "SAS"}
            for bay in (0, 1)
        ],
    }


class Emulator:
    """A running emulator at ``url``."""

    def __init__(self, url: str, noted: Path) -> None:
        self.url = url
        self._noted = noted

    def resets(self, number: int) -> list[str]:
        """Return the resets that a machine was commanded, in order, by their types."""
        lines = self._noted.read_text().splitlines() if self._noted.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == system_uuid(number)]

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Return a resource as it really is, behind everybody's back."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": AUTHORIZATION, "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def system(self, number: int) -> Any:
        return self.ask(f"/redfish/v1/Systems/{system_uuid(number)}")

    def media(self, number: int, drive: str) -> Any:
        return self.ask(f"/redfish/v1/Systems/{system_uuid(number)}/VirtualMedia/{drive}")

    def answers(self) -> bool:
        try:
            return bool(self.ask("/redfish/v1/Systems"))
        except OSError:
            return False


def node_at(url: str, number: int = 0, **more: Any) -> Node:
    """Return a node whose BMC is at ``url``; ``more`` is added to its ``driver_info``."""
    return Node(
        uuid=f"aaaaaaaa-0000-4000-8000-{number:012x}",
        name=f"node-{number}",
        driver="redfish",
        driver_info=driver_info(url, number) | more,
    )


def driver_info(url: str, number: int = 0) -> dict[str, Any]:
    """Return what ``driver_info`` says of a machine."""
    return {
        "redfish_address": url,
        "redfish_system_id": f"/redfish/v1/Systems/{system_uuid(number)}",
        "redfish_username": USER,
        "redfish_password": PASSWORD,
    }


@contextmanager
def emulator(
    directory: Path, *, machines: int, lag: float = 0.0, certificate: tuple[Path, Path] | None = None
) -> Iterator[Emulator]:
    """Run an emulator until the end of the block. ``certificate``: its file and its key's, for https."""
    program = ENVIRONMENT / "bin" / "sushy-emulator"
    if not program.exists():
        raise RuntimeError(f"there is no {program}; run: tools/setup.sh emulators")
    directory.mkdir(parents=True, exist_ok=True)
    passwords = directory / "htpasswd"
    passwords.write_text(HTPASSWD)
    rack = {
        "state": str(directory / "state"),
        "auth": str(passwords),
        "systems": [machine(number) for number in range(machines)],
        "lag": lag,
    }
    port = free_port()
    command = [str(program), "--config", str(ROOT / "tests/support/emulators/redfish_config.py"), "--port", str(port)]
    if certificate is not None:
        command += ["--ssl-certificate", str(certificate[0]), "--ssl-key", str(certificate[1])]
    log = directory / "emulator.log"
    url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}"
    made = Emulator(url, directory / "state.resets")
    ready = made.answers if certificate is None else lambda: " * Running on" in log.read_text()
    with running("emulator", directory, ["env", f"RACK={json.dumps(rack)}", *command], ready):
        yield made


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that is its own CA; return its file and its key's."""
    certificate, key = directory / "bmc.pem", directory / "bmc.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bmc"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
