"""A small fleet in every state, served over HTTP: for tests in a browser, and for the pictures of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ferroscope.core.delivery import Fail
from ferroscope.core.model import HARDWARE_CHANGED, Entry
from ferroscope.core.notification import iso
from ferroscope.core.states import Event
from ferroscope.http_server.server import HttpServer, bind
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from ferroscope_sim.inventory import out_of_band
from ferroscope_sim.inventory.body import document
from tests.api.service import Service
from tests.support import examples

FINISHED = 22
FAILED = (
    *[("bmc-unreachable", "the BMC at 192.0.2.17 did not answer")] * 3,
    *[("timeout", "no callback within 1800 s")] * 2,
    ("ramdisk-error", "lshw: no such device"),
)
RULE: dict[str, Any] = {
    "description": "Machines of ACME are of the class acme",
    "priority": 10,
    "conditions": [{"op": "eq", "args": ["{inventory[system_vendor][manufacturer]}", "ACME"]}],
    "actions": [{"op": "set-attribute", "args": {"path": "/resource_class", "value": "acme"}}],
}


@contextmanager
def stage(url: str, **api: Any) -> Iterator[tuple[str, Service]]:
    """Give the base URL and the service."""
    service = Service(url, **api)
    listener = bind("127.0.0.1", 0)
    server = HttpServer(service.app, service.settings.api, [listener], decides=True)
    try:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.start()
        yield base, service
    finally:
        server.stop(1)
        service.close()


def fill(service: Service, identifier: Callable[[str], str] = lambda _: examples.uuid()) -> dict[str, str]:
    """Enroll and inspect the fleet; return the UUIDs by name, which ``identifier`` makes."""
    known = {}

    def enrol(name: str, **fields: Any) -> str:
        known[name] = service.enrol(name=name, uuid=identifier(name), **fields)
        return known[name]

    for number in range(1, FINISHED + 1):
        name = f"rack{1 + number // 12}-u{number % 12 + 1:02}"
        enrol(name, labels={"rack": name[:5], "spare": ""} if number % 5 == 3 else {})
        _inspect(service, known[name], number)
        _age(service, known[name], ago=number * 6.5 * 3600)
    first = next(iter(known))
    inspect_again(service, known[first], _changed(1))
    _note_change(service, known[first])
    for number, (reason, message) in enumerate(FAILED):
        name = f"rack3-u{number + 1:02}"
        service.wait(enrol(name))
        service.step(known[name], Event.FAIL, Fail(Reason(reason), message))
        _age(service, known[name], ago=number * 11 * 3600)
    for number in range(3):
        service.wait(enrol(f"rack4-u{number + 1:02}"))
    for name in ("rack1-u05", "rack2-u03"):
        service.bare_metal.put(f"/v1/nodes/{known[name]}/maintenance", {"reason": "DIMM A3 reports errors"})
    for name in ("rack1-u08", "rack1-u09", "rack2-u06"):
        service.bare_metal.put(f"/v1/nodes/{known[name]}/states/provision", {"target": "provide"})
    _report_health(service, known["rack2-u04"], 15)
    _discovered(service, identifier)
    service.store.write(lambda tx: tx.rules.add(examples.rule(uuid=identifier("rule"), **RULE)))
    lanes = {"bmc": {"slots": 256, "busy": 3}, "compute": {"slots": 2, "busy": 0}}

    def members(tx: Any) -> None:
        for host, role in (("control1", "api"), ("control1", "worker"), ("control2", "api"), ("control2", "worker")):
            detail = {"version": "0.1.0", "lanes": lanes} if role == "worker" else {"version": "0.1.0"}
            member = examples.member(f"{role}-{host}", host=host, role=role, status="running", detail=detail)
            tx.members.beat(member, 600.0)
        tx.leases.acquire("periodic/retention", "worker-control1", 600.0)
        tx.leases.acquire("periodic/timeouts", "worker-control2", 600.0)
        tx.members.leave("worker-1")

    service.store.write(members)
    return known


def _report_health(service: Service, ident: str, number: int) -> None:
    """Store what the BMC of the machine says of its drives."""
    report = out_of_band.health(number, "failing-drive")
    at = iso(service.store.read(lambda tx: tx.now) - 7200)
    found = {"source": "redfish", "read_at": at, "inventory": {"firmware": report["firmware"]}}
    service.save_plugin_data(ident, {"out_of_band": found | {"health": report["health"]}})
    service.learn(ident, document(number)["inventory"], {"out_of_band": found | {"health": report["health"]}})


def _discovered(service: Service, identifier: Callable[[str], str]) -> None:
    """Add machines that wait in the inbox; the second one may be a machine of the fleet."""
    now = service.store.read(lambda tx: tx.now)
    for number, source in ((31, "192.0.2.31"), (8, "192.0.2.87"), (32, "192.0.2.31")):
        body = document(number)
        mac = body["inventory"]["interfaces"][0]["mac_address"]
        mac = f"{mac[:-1]}{(int(mac[-1], 16) + 8) % 16:x}"  # a port of its own
        node = examples.node(
            uuid=identifier(f"discovered {number}"),
            driver="fake-hardware",
            driver_info={"bmc_address": f"192.0.2.{100 + number}"},
            provision_state=Provision.ENROLL,
            inbox=True,
            auto_discovered=True,
            created_at=now - 3600.0 * number,
            internal={"discovery": {"source": source, "mac": mac}},
        )
        port = examples.port(node, address=mac)
        service.store.write(lambda tx, node=node, port=port: (tx.nodes.add(node), tx.ports.add([port])))
        service.learn(node.uuid, body["inventory"], body)


def _inspect(service: Service, ident: str, number: int) -> None:
    service.wait(ident, mac=document(number)["inventory"]["interfaces"][0]["mac_address"])
    inspected(service, ident, document(number))


def inspect_again(service: Service, ident: str, body: dict[str, Any]) -> None:
    """Inspect the machine once more; it sends this body."""
    service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "inspect"})
    inspected(service, ident, body)


def inspected(service: Service, ident: str, body: dict[str, Any]) -> None:
    """Let the machine, whose inspection has begun, send this body, and the inspection finish."""
    if service.node(ident).state != "waiting":
        service.consume()
        service.step(ident, Event.WAIT)
    answer = service.bare_metal.post("/v1/continue_inspection", msgspec.json.encode(body))
    assert answer.status_code == 202, answer.text
    service.finish(ident)
    _age(service, ident)
    service.learn(ident, body["inventory"], body)


def _age(service: Service, ident: str, ago: float = 0.0) -> None:
    """Make the inspection as long as one of a real machine, and let it have ended so many seconds ago."""
    node = service.node(ident)
    assert node.inspection is not None
    inspection, lasted = node.inspection, 240.0 + int(node.uuid[:2], 16)
    service.alter(ident, power_state="power off")

    def work(tx: Any) -> None:
        end = tx.now - ago
        phases = {"started_at": end - lasted, "waiting_since": end - lasted + 12, "processing_since": end - 3}
        tx.inspections.update(inspection, **phases, finished_at=end)

    service.store.write(work)


def _note_change(service: Service, ident: str) -> None:
    """Record that the last inspection has found other hardware, as a worker does."""
    node, text = service.node(ident), "disk /dev/sdb is gone: hdd, 4 TB, Seagate, serial ZC1A2B3D"
    assert node.inspection is not None
    entry = Entry(node=ident, inspection=node.inspection, step=HARDWARE_CHANGED, message=text)
    service.store.write(lambda tx: (tx.inspections.update(str(node.inspection), changes=1), tx.journal.append([entry])))


def _changed(number: int) -> dict[str, Any]:
    """Return the body of a machine that has lost a disk."""
    body = document(number)
    body["inventory"]["disks"] = body["inventory"]["disks"][:-1]
    return body
