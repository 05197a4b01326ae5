"""A service whose machines boot in one way, with or without the secret of their inspection."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ferroscope.bmc.fake import FakeBmc
from ferroscope.config.options import BootSettings, DriverSettings, InspectorSettings, LogSettings
from ferroscope.core import callback_secret
from ferroscope.core.model import Inspection, Node
from ferroscope.core.states import Event
from ferroscope.core.virtual_media import Image
from tests.api.service import DRIVERS, Service, callback_body
from tests.support import databases, examples

API = "http://192.0.2.1:6385"
SCRIPT = f"{API}/v1/boot.ipxe"
ATTACKER, MACHINE = "198.51.100.66", "192.0.2.77"


class Able(FakeBmc):
    """A driver that can boot the ramdisk by virtual media."""

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        return None

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        return True


class Site:
    """A service whose machines boot in one way, and its node that waits for the callback."""

    def __init__(self, directory: Path, way: str, mode: str = "required") -> None:
        sections: dict[str, Any] = {
            "inspector": InspectorSettings(
                callback_secret=mode,  # type: ignore[arg-type]
                ramdisk_iso=f"{API}/r.iso" if way == "virtual media" else "",
                callback_endpoint_override=API,
            ),
            "boot": BootSettings(machine_script_url=SCRIPT if way in ("boot script", "ipxe") else "", http_url=API),
            "log": LogSettings(access=True),
            "drivers": DriverSettings(enabled=("fake-hardware", "sim", "able")),
        }
        self.way = way
        self.service = Service(databases.sqlite(directory), sections=sections, drivers=DRIVERS | {"able": Able()})
        self.node = self.service.enrol(driver="able", driver_info={"bmc_address": "10.99.0.7"})
        self.mac = examples.mac()
        if way == "ipxe":
            patch = {"op": "add", "path": "/boot_interface", "value": "ipxe"}
            assert self.service.bare_metal.patch(f"/v1/nodes/{self.node}", patch).status_code == 200
        self.start()

    def start(self) -> None:
        start = self.service.introspection.post if self.way == "unmanaged" else None
        known = self.service.bare_metal.get(f"/v1/ports?address={self.mac}").json["ports"]
        if not known:
            self.service.bare_metal.post("/v1/ports", {"node_ident": self.node, "address": self.mac})
        if start:
            answer = start(f"/v1/introspection/{self.node}?manage_boot=false")
        else:
            answer = self.service.bare_metal.put(f"/v1/nodes/{self.node}/states/provision", {"target": "inspect"})
        assert answer.status_code == 202, answer.text

    def power_on(self) -> None:
        """Do what a worker does until the machine runs."""
        if self.way == "virtual media":
            found = self.inspection
            self.service.store.write(lambda tx: tx.inspections.update(found.uuid, secret_delivery="virtual-media"))
        self.service.consume()
        self.service.step(self.node, Event.WAIT)

    @property
    def inspection(self) -> Inspection:
        return self.service.store.read(lambda tx: tx.inspections.get(str(tx.nodes.get(self.node).inspection)))

    @property
    def secret(self) -> str:
        """The secret as the machine gets it, "" if it gets none."""
        if self.way == "virtual media":
            key = callback_secret.disk_key(str(self.inspection.secret))
            disk = self.service.bare_metal.get(f"/v1/ramdisk_parameters/{self.node}/{key}/disk.img")
            assert disk.status_code == 200
            found = re.search(rb"continue_inspection\?secret=(\S+)", disk.content)
            assert found is not None
            return found[1].decode()
        if self.way == "boot script":
            return self.fetched(MACHINE)
        return ""

    def fetched(self, source: str) -> str:
        script = self.service.bare_metal.get(f"/v1/boot.ipxe?mac={self.mac}", remote_addr=source)
        assert script.status_code == 200
        assert script.text.startswith("#!ipxe\n")
        return (re.findall(r"^set secret (\S+)$", script.text, re.MULTILINE) or [""])[0]

    def call(self, secret: str | None, *, source: str, body: Any = None, path: str = "/v1/continue_inspection") -> Any:
        query = "" if secret is None else f"?secret={secret}"
        body = callback_body(self.mac) if body is None else body
        version = None if path == "/v1/continue" else self.service.callback_version
        return self.service.client(version).post(path + query, body, remote_addr=source)

    def timeline(self) -> list[tuple[str, str | None, str]]:
        entries = self.service.bare_metal.get(f"/v1/nodes/{self.node}/timeline").json["inspections"][0]["entries"]
        return [(entry["step"], entry["reason"], entry["message"]) for entry in entries]
