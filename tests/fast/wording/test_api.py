"""Responses of the API: ``provoke`` gets a service with the node ``NODE`` and returns the error's message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from ferroscope.api import errors
from ferroscope.contracts.errors import ConflictError, StaleError, StoreUnavailableError
from ferroscope.core.delivery import IllegalEventError
from ferroscope.core.states import Event, State
from tests.api.service import Service
from tests.fast.wording.table import wrong
from tests.support import databases, misses

UUID: Final = "5b1a0d5c-3f26-4a3e-9f0e-5a1d1b7f9a01"
NODE: Final = {"uuid": UUID, "driver": "fake-hardware", "name": "rack1-u07"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(databases.sqlite(tmp_path_factory.mktemp("wording")))
    served.enrol(**NODE)
    yield served
    served.close()


def _call(method: str, path: str, body: Any = None, **more: Any) -> Callable[[Service], str]:
    def provoke(service: Service) -> str:
        result = service.bare_metal.call(method, path, body, **more)
        assert result.status_code >= 400
        return str(json.loads(result.json["error_message"])["faultstring"])

    return provoke


def _translated(exc: Exception) -> Callable[[Service], str]:
    def provoke(_service: Service) -> str:
        translated = errors.translate(exc)
        assert translated is not None
        return translated.message

    return provoke


API: Final[tuple[tuple[str, Callable[[Service], str], str], ...]] = (
    (
        "unknown path",
        _call("GET", "/v1/nonsense"),
        "/v1/nonsense does not exist. GET /openapi.json lists all paths.",
    ),
    (
        "method not allowed",
        _call("PUT", "/v1/nodes"),
        "PUT is not allowed for /v1/nodes; allowed: GET, HEAD, POST, OPTIONS.",
    ),
    ("no such node", _call("GET", "/v1/nodes/rack9"), "Node rack9 could not be found."),
    (
        "name in use",
        _call("POST", "/v1/nodes", {"driver": "sim", "name": "rack1-u07"}),
        'The name "rack1-u07" is already in use; choose another name.',
    ),
    (
        "UUID in use",
        _call("POST", "/v1/nodes", {"driver": "sim", "uuid": UUID}),
        f"UUID {UUID} is already in use; omit it to have one generated.",
    ),
    (
        "inspection of a node that is being verified",
        _translated(IllegalEventError(State.NONE, Event.INSPECT, verifying=True)),
        "Inspect is not possible while the node is being verified; allowed now: delete.",
    ),
    (
        "MAC address in use",
        _translated(ConflictError("address", "52:54:00:12:34:56")),
        "MAC address 52:54:00:12:34:56 is already in use by another port; delete that port first.",
    ),
    (
        "modified concurrently",
        _translated(StaleError()),
        "The node was modified concurrently; read it again and repeat the request.",
    ),
    (
        "database outage",
        _translated(StoreUnavailableError("connection refused")),
        "The database is unavailable; nothing was changed. Try again in a second.",
    ),
    ("no body", _call("POST", "/v1/nodes"), "The request has no body; a JSON body is required."),
    (
        "wrong type",
        _call("POST", "/v1/nodes", {"driver": 1}),
        "Invalid request body: Expected `str`, got `int` - at `$.driver`. GET /openapi.json returns its schema.",
    ),
    (
        "unknown query parameter",
        _call("GET", f"/v1/nodes/{UUID}?field=uuid"),
        "Unknown query parameter: 'field'. Supported: fields.",
    ),
    (
        "invalid MAC address",
        _call("POST", "/v1/ports", {"node_uuid": UUID, "address": "52-54"}),
        "Invalid address '52-54': it must be a MAC address such as 52:54:00:12:34:56.",
    ),
    (
        "unsupported microversion",
        _call("GET", "/v1/nodes", version="1.999"),
        "Version 1.999 is not supported by this service. The supported version range is: [1.1, 1.115].",
    ),
    (
        "path in a newer microversion",
        _call("GET", f"/v1/nodes/{UUID}/inventory", version="1.80"),
        f"/v1/nodes/{UUID}/inventory requires API version 1.81 or newer; the request uses 1.80.",
    ),
    (
        "web page",
        _call("POST", "/v1/nodes", NODE, headers={"Origin": "http://example.org"}),
        "Cross-site requests from web pages are not allowed (Origin, Sec-Fetch-Site).",
    ),
    (
        "verb in the wrong state",
        _call("PUT", f"/v1/nodes/{UUID}/states/provision", {"target": "provide"}),
        f"Node {UUID} is enroll (inspection: none): provide is not possible; allowed now: inspect, manage.",
    ),
)


def test_api(service: Service) -> None:
    misses.none(wrong(API, service))


def test_internal_error_names_its_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **_options: object) -> None:
        raise KeyError("uuid")

    monkeypatch.setattr(service.store, "read", broken)
    result = service.bare_metal.get(f"/v1/nodes/{UUID}")
    request_id = result.headers["Openstack-Request-Id"]
    message = json.loads(result.json["error_message"])["faultstring"]
    assert message == f"Internal error; see the service log (request ID {request_id})."
