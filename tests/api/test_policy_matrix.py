"""The matrix of docs/reference/policies.md is what happens over HTTP: each route, each kind of caller."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.api.http.route import Route, Surface
from ferroscope.api.routes import ROUTES
from tests import ROOT
from tests.api.callers import As, service_for
from tests.api.service import Service
from tests.support import databases, examples
from tools.docs.policies import CALLERS, HIDDEN, LESSEE, LIMITED, LOGIN, NO, OWNER, YES

PAGE = ROOT / "docs/reference/policies.md"
NODE = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
PORT = "52:54:00:aa:00:01"
GROUP = "2be26c0b-03f2-4d2e-ae87-c02d7f33c123"
IDENTITIES = {name: identity for name, identity in CALLERS.items() if identity is not None}


def documented() -> dict[tuple[str, str], list[str]]:
    """Return the rows of the page: method and path -> a cell for each caller."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\| (GET|POST|PUT|PATCH|DELETE) (/\S*) \| [^|]* \|(.*)\|$", line):
            rows[found[1], found[2]] = [cell.strip() for cell in found[3].split("|")]
    return rows


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = service_for(databases.sqlite(tmp_path_factory.mktemp("matrix")), IDENTITIES)
    yield served
    served.close()


def call(service: Service, route: Route, caller: str) -> Any:
    """Make the call about a node and a port that exist before each call."""
    admin = As(service.bare_metal, "system admin")
    node = {"uuid": NODE, "driver": "fake-hardware", "owner": OWNER, "lessee": LESSEE}
    admin("POST", "/v1/nodes", node)
    admin("POST", "/v1/ports", {"node_uuid": NODE, "address": PORT})
    admin("POST", "/v1/portgroups", {"node_uuid": NODE, "uuid": GROUP})
    values = {"node": NODE, "port": PORT, "portgroup": GROUP, "driver": "fake-hardware", "address": examples.mac()}
    path = re.sub(r"{(\w+)}", lambda found: values.get(found[1], "nothing"), route.path)
    body: Any = None if route.body is None else {}
    if route.method == "PATCH":
        body = [{"op": "add", "path": "/extra/tried", "value": "1"}]
    if path in ("/v1/ports", "/v1/portgroups") and route.method == "POST":
        body = {"node_uuid": NODE, "address": examples.mac()}
    client = service.introspection if route.surface is Surface.INTROSPECTION else service.bare_metal
    return As(client, "" if caller == "anonymous" else caller)(route.method, path, body)


def outcome(answer: Any) -> str:
    text = answer.text
    assert answer.status_code < 500, text
    if answer.status_code == 401:
        assert answer.headers["WWW-Authenticate"]
        return LOGIN
    if answer.status_code == 403 and "The policy" in text:
        return NO
    hidden = [f"{kind} could not be found" for kind in (f"Node {NODE}", f"Port {PORT}", f"Portgroup {GROUP}")]
    return HIDDEN if answer.status_code == 404 and any(one in text for one in hidden) else YES


def test_each_caller_gets_what_the_page_says(service: Service) -> None:
    rows = documented()
    for route in ROUTES:
        got = [outcome(call(service, route, caller)) for caller in CALLERS]
        cells = rows[route.method, route.path]
        assert got == [YES if cell == LIMITED else cell for cell in cells], f"{route.method} {route.path}"


@pytest.mark.parametrize("path", ["/v1/ports", "/v1/portgroups"])
@pytest.mark.parametrize("fields", [{"colour": "red"}, {"address": "nonsense"}], ids=str)
def test_a_policy_is_asked_before_the_body_is_checked(service: Service, path: str, fields: dict[str, Any]) -> None:
    row = dict(zip(CALLERS, documented()["POST", path], strict=True))
    As(service.bare_metal, "system admin")(
        "POST", "/v1/nodes", {"uuid": NODE, "driver": "fake-hardware", "owner": OWNER}
    )
    for node in (NODE, NODE.upper(), NODE.replace("-", "")):
        for caller in ("lessee reader", "owner reader", "other reader", "other member", "other admin"):
            answer = As(service.bare_metal, caller)("POST", path, {"node_uuid": node} | fields)
            assert str(answer.status_code) == row[caller], (caller, node, answer.text)
        absent = {"node_uuid": str(uuid.UUID(int=7))} | fields
        assert As(service.bare_metal, "other admin")("POST", path, absent).status_code == 404


def test_a_route_whose_body_names_a_node_decides_by_that_node_or_is_for_the_whole_service() -> None:
    rows = documented()
    naming = {"node", "node_uuid", "node_ident"}
    routes = [
        route for route in ROUTES if naming & set(getattr(route.body, "__struct_fields__", ())) and not route.ramdisk
    ]
    assert {f"{route.method} {route.path}" for route in routes if route.late} == {
        "POST /v1/ports",
        "POST /v1/portgroups",
    }
    for route in routes:
        projects = [cell for name, cell in zip(CALLERS, rows[route.method, route.path], strict=True) if " " in name]
        assert route.late or YES not in projects[5:], route.path


def test_the_page_has_each_route_and_each_caller() -> None:
    rows = documented()
    assert set(rows) == {(route.method, route.path) for route in ROUTES}
    assert {len(cells) for cells in rows.values()} == {len(CALLERS)}
    assert {cell for cells in rows.values() for cell in cells} == {YES, LIMITED, HIDDEN, NO, LOGIN}


def test_nothing_but_what_must_be_open_is_open() -> None:
    open_to_all = {f"{method} {path}" for (method, path), cells in documented().items() if cells[0] == YES}
    assert open_to_all == {
        "GET /",
        "GET /v1",
        "GET /healthcheck",
        "GET /openapi.json",
        "GET /metrics",
        "POST /v1/continue",
        "POST /v1/continue_inspection",
        "GET /v1/lookup",
        "POST /v1/heartbeat",
        "POST /v1/heartbeat/{node}",
        "GET /v1/boot.ipxe",
        "GET /v1/media/{name}",
        "GET /v1/ramdisk_parameters/{node}/disk.img",
        "GET /v1/ramdisk_parameters/{node}/{key}/disk.img",
    }
