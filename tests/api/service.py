"""The api role as tests use it: the real application over a real store, without a socket.

``Service`` also plays the worker, one step at a time, so that a test can stop between any two.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Any
from unittest import mock

import falcon.testing
import msgspec

from ferroscope import transition
from ferroscope.api import rate_limit
from ferroscope.api.auth.authentication import Authentication
from ferroscope.bmc.fake import FakeBmc
from ferroscope.config.options import ApiSettings, DatabaseSettings, Settings
from ferroscope.contracts.store import Clock, packed
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.delivery import Fail, advance
from ferroscope.core.model import Node, Request
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.hardware import search_index
from ferroscope.runtime import wiring
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.support import examples
from tests.support.stores import claim_from

LATEST = "1.115"
INTROSPECTION_PORT = 5050
DRIVERS = {"fake-hardware": FakeBmc(), "sim": FakeBmc()}
# Services that are not closed yet; a fixture closes those that a test leaves.
OPENED: list[Service] = []


class Client:
    """Calls one of the two APIs at a microversion of its own; ``version`` None sends no header."""

    def __init__(self, app: Any, *, header: str, version: str | None, port: int) -> None:
        self._client = falcon.testing.TestClient(app)
        self._header = header
        self._version = version
        self._port = port

    def call(
        self, method: str, path: str, body: Any = None, *, version: str | None = None, **more: Any
    ) -> falcon.testing.Result:
        headers = dict(more.pop("headers", {}))
        asked = version or self._version
        if asked is not None:
            headers.setdefault(self._header, asked)
        if body is not None:
            more["body"] = body if isinstance(body, (bytes, str)) else json.dumps(body)
        path, _, query = path.partition("?")
        return self._client.simulate_request(
            method, path, headers=headers, query_string=query, host="localhost", port=self._port, **more
        )

    def get(self, path: str, **more: Any) -> falcon.testing.Result:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> falcon.testing.Result:
        return self.call("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> falcon.testing.Result:
        return self.call("PUT", path, body, **more)

    def patch(self, path: str, *operations: Any, **more: Any) -> falcon.testing.Result:
        return self.call("PATCH", path, list(operations), **more)

    def delete(self, path: str, **more: Any) -> falcon.testing.Result:
        return self.call("DELETE", path, **more)


class Service:
    """Both APIs over the database at ``url``; ``sections`` are settings other than those of the API.

    ``drivers`` are instead of the usual ones. A source may fail ``failure_burst`` times. ``callback_version`` is that
    of callbacks that ask for no other: with a token in the response, or without.
    """

    callback_version: str | None = None

    def __init__(
        self,
        url: str,
        *,
        sections: dict[str, Any] | None = None,
        authentication: Authentication | None = None,
        drivers: Any = None,
        clock: Clock | None = None,
        meter: Meter = SILENT,
        failure_burst: int = rate_limit.FAILURE_BURST,
        **api: Any,
    ) -> None:
        # Longer than the default: on a busy machine, many writers wait for each other on SQLite.
        database = DatabaseSettings(connection=url, busy_timeout=30.0)
        given: dict[str, Any] = {"database": database, "api": ApiSettings(**api)} | (sections or {})
        self.settings = Settings(**given)
        self.stop = threading.Event()
        clock = clock or SystemClock()
        self.backend = open_backend(self.settings, clock=clock, stop=self.stop, listen=False, meter=meter)
        self.store = self.backend.store
        with mock.patch.object(rate_limit, "Callers", partial(rate_limit.Callers, burst=failure_burst)):
            self.app = wiring.build_app(
                self.settings,
                self.backend,
                drivers or DRIVERS,
                process="api-test",
                authentication=authentication,
            )
        self.bare_metal = self.client()
        self.introspection = Client(
            self.app,
            header="X-OpenStack-Ironic-Inspector-API-Version",
            version=None,
            port=INTROSPECTION_PORT,
        )
        OPENED.append(self)

    def client(self, version: str | None = LATEST) -> Client:
        return Client(self.app, header="X-OpenStack-Ironic-API-Version", version=version, port=6385)

    def close(self) -> None:
        if self in OPENED:
            OPENED.remove(self)
        self.stop.set()
        self.backend.close()

    def call_back(
        self, body: Any, *, version: str | None = None, query: str = "", **more: Any
    ) -> falcon.testing.Result:
        """Send what a ramdisk sends."""
        path = f"/v1/continue_inspection{query}"
        return self.client(version or self.callback_version).post(path, body, **more)

    def enrol(self, **fields: Any) -> str:
        """Enrol a node and return its UUID."""
        answer = self.bare_metal.post("/v1/nodes", {"driver": "fake-hardware", **fields})
        assert answer.status_code == 201, answer.text
        return str(answer.json["uuid"])

    def node(self, ident: str) -> Node:
        return self.store.read(lambda tx: tx.nodes.get(ident))

    def pending(self, ident: str) -> list[Request]:
        return list(self.store.read(lambda tx: tx.requests.pending(self.node(ident).uuid)))

    def consume(self) -> list[Request]:
        """Take every request off the queue that can be claimed, as a worker that does nothing."""
        self.store.write(lambda tx: tx.members.beat(examples.member("worker-1"), 60.0))
        taken: list[Request] = []
        while (claim := claim_from(self.backend.queue, "worker-1", 0.0, self.stop)) is not None:
            self.store.write(lambda tx, claim=claim: tx.requests.consume(claim))  # type: ignore[misc]
            taken.append(claim.request)
        return taken

    def step(self, ident: str, event: Event, failure: Fail | None = None) -> Node:
        """Save the state that ``event`` leads to, as a worker does."""

        def work(tx: Transaction) -> Node:
            node = tx.nodes.get(ident, lock=True)
            return transition.apply(tx, node, advance(node.state, event), failure=failure)

        return self.store.write(work)

    def wait(self, ident: str, *, mac: str | None = None) -> str:
        """Bring the node to waiting for its ramdisk; return the MAC of its port."""
        mac = mac or examples.mac()
        known = self.bare_metal.get(f"/v1/ports?address={mac}").json["ports"]
        if not known:
            answer = self.bare_metal.post("/v1/ports", {"node_ident": ident, "address": mac})
            assert answer.status_code == 201, answer.text
        answer = self.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "inspect"})
        assert answer.status_code == 202, answer.text
        self.consume()
        self.step(ident, Event.WAIT)
        return mac

    def alter(self, ident: str, **fields: Any) -> None:
        """Change the stored node, as an earlier release or an attached registry may have done."""

        def work(tx: Transaction) -> None:
            tx.nodes.update(msgspec.structs.replace(tx.nodes.get(ident, lock=True), **fields))

        self.store.write(work)

    def finish(self, ident: str, plugin_data: Any = None) -> None:
        """End the inspection whose callback was accepted, with this plugin data."""
        self.consume()
        self.step(ident, Event.CONTINUE)
        self.save_plugin_data(ident, plugin_data or {"valid_interfaces": {}})
        self.step(ident, Event.FINISH)

    def save_plugin_data(self, ident: str, plugin_data: Any) -> None:
        node = self.node(ident)
        assert node.inspection is not None
        inspection = node.inspection
        parts = packed({"plugin_data": msgspec.json.encode(plugin_data)})
        self.store.write(lambda tx: tx.data.save(inspection, node.uuid, parts))

    def inspect(self, ident: str, *, serial: str = "1", mac: str | None = None) -> dict[str, Any]:
        """Carry out a whole inspection; return the body of its callback."""
        mac = self.wait(ident, mac=mac)
        body = callback_body(mac, serial=serial)
        answer = self.bare_metal.post("/v1/continue_inspection", body, version="1.1")
        assert answer.status_code == 202, answer.text
        self.finish(ident)
        return body

    def learn(self, ident: str, inventory: Any, plugin_data: Any = None) -> None:
        """Store of a node what an inspection with these results would teach, and no more."""
        found = search_index.learn(inventory, plugin_data or {})

        def work(tx: Transaction) -> None:
            node = tx.nodes.get(ident)
            tx.nodes.update(msgspec.structs.replace(node, search_digest=found.digest, hardware=found.summary))
            tx.search_index.replace(node.uuid, found.rows, had=True)

        self.store.write(work)

    def fail(self, ident: str) -> None:
        self.consume()
        self.step(ident, Event.FAIL, Fail(Reason.TIMEOUT, "nothing was heard"))
        assert self.node(ident).state is State.ERROR


def callback_body(*macs: str, serial: str = "1", **inventory: Any) -> dict[str, Any]:
    """Return what a small machine with these MACs sends."""
    return {
        "inventory": {
            "interfaces": [{"name": f"eth{i}", "mac_address": mac, "lldp": []} for i, mac in enumerate(macs)],
            "cpu": {"architecture": "x86_64", "count": 8},
            "memory": {"physical_mb": 16384},
            "system_vendor": {"serial_number": serial},
            **inventory,
        },
        "boot_interface": "01-" + macs[0].replace(":", "-") if macs else None,
        "error": None,
    }


def caller(answer: falcon.testing.Result) -> str:
    """Return the UUID in the response to a callback that was accepted, in either version."""
    assert answer.status_code == 202, answer.text
    return str(answer.json["uuid"] if "uuid" in answer.json else answer.json["node"]["uuid"])


def fault(answer: falcon.testing.Result) -> str:
    """Return the message of a Bare Metal API error, as ironicclient finds it."""
    inner = json.loads(answer.json["error_message"])
    assert set(inner) == {"faultcode", "faultstring", "debuginfo"}, inner
    return str(inner["faultstring"])


def message(answer: falcon.testing.Result) -> str:
    """Return the message of an Introspection API error, as its client finds it."""
    return str(answer.json["error"]["message"])
