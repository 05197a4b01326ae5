"""The BMCs of the machines: sushy-tools' Redfish emulator with its libvirt driver, as Metal3 and OpenStack test with.

It runs in the machines' network, where it fetches images, and where the worker finds it; the tests reach it through a
forwarder.
"""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any, Final
from unittest import mock

from tests import ROOT
from tests.support.boot.hypervisor import POOL, Hypervisor
from tests.support.installation import Installation
from tests.support.processes import PATIENCE, free_port
from tests.support.pxe.netns import Netns
from tests.support.redfish import AUTHORIZATION, ENVIRONMENT, HTPASSWD, PASSWORD, USER

_CONFIGURATION: Final = ROOT / "tests/support/emulators/libvirt_config.py"


class Bmc:
    """``url`` is the Redfish service that all machines have in common, as the worker reaches it."""

    def __init__(self, site: Installation, hypervisor: Hypervisor, space: Netns, address: str) -> None:
        program = ENVIRONMENT / "bin" / "sushy-emulator"
        if not program.exists():
            raise RuntimeError(f"there is no {program}; run: tools/setup.sh emulators")
        self.port = free_port()
        self.place = f"{space.name}@{address}:{self.port}"
        self.url = f"http://{address}:{self.port}"
        directory = site.directory / "bmc"
        directory.mkdir()
        passwords = directory / "htpasswd"
        passwords.write_text(HTPASSWD)
        settings = {
            "uri": hypervisor.uri,
            "state": str(directory),
            "auth": str(passwords),
            "address": address,
            "pool": POOL,
        }
        command = [str(program), "--config", str(_CONFIGURATION), "--port", str(self.port)]
        with mock.patch.dict(os.environ, {"BMC": json.dumps(settings), "TMPDIR": str(directory)}):
            self._process = site.play("sushy-emulator", [*space.prefix, *command])

    def wait_answers(self) -> None:
        """Return when it answers this host."""
        self._process.wait_until(self._answers)

    def driver_info(self, uuid: str) -> dict[str, Any]:
        """Return what ``driver_info`` says of a machine."""
        return {
            "redfish_address": self.url,
            "redfish_system_id": f"/redfish/v1/Systems/{uuid}",
            "redfish_username": USER,
            "redfish_password": PASSWORD,
        }

    def ask(self, path: str) -> Any:
        """Return a resource as it really is, behind everybody's back."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": AUTHORIZATION}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def media(self, uuid: str) -> dict[str, str]:
        """Return what is in each virtual drive of a machine, "" for nothing."""
        root = f"/redfish/v1/Systems/{uuid}/VirtualMedia"
        return {drive: self.ask(f"{root}/{drive}")["Image"] for drive in ("Cd", "Floppy")}

    def _answers(self) -> bool:
        try:
            return bool(self.ask("/redfish/v1/Systems"))
        except OSError:
            return False
