"""What a web page makes an operator's browser send changes nothing, on either API."""

from __future__ import annotations

from typing import Any

import falcon.testing
import pytest

from tests.api.service import Service, fault, message

_PAGE = {"Origin": "http://evil.example", "Content-Type": "text/plain"}


@pytest.mark.parametrize(
    "headers", [_PAGE, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
def test_a_page_cannot_change_anything(service: Service, headers: dict[str, str]) -> None:
    uuid = service.enrol()
    before = service.node(uuid)
    answer = service.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, headers=headers)
    assert answer.status_code == 403
    assert "Sec-Fetch-Site" in fault(answer)
    answer = service.introspection.post(f"/v1/introspection/{uuid}", headers=headers)
    assert answer.status_code == 403
    assert "Sec-Fetch-Site" in message(answer)
    assert service.bare_metal.delete(f"/v1/nodes/{uuid}", headers=headers).status_code == 403
    assert service.node(uuid) == before


def test_a_page_cannot_read_but_its_links_may_be_followed(service: Service) -> None:
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert service.bare_metal.get("/v1/nodes", headers=script).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert service.bare_metal.get("/v1/nodes", headers=link).status_code == 200
    typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}
    assert service.bare_metal.get("/v1/nodes", headers=typed).status_code == 200


@pytest.mark.parametrize("path", ["/v1/nodes", "/", "/v1/unknown"])
def test_a_page_whose_name_was_rebound_to_this_host_reads_nothing(service: Service, path: str) -> None:
    """The browser sends what it sends to the page's own server: the name, and that it is the same origin."""
    service.enrol(name="secret-node")
    rebound = {"Host": "evil.example:6385", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    answer = service.bare_metal.get(path, headers=rebound)
    assert answer.status_code == 421
    assert "allowed_hosts" in fault(answer)
    assert "secret-node" not in answer.text
    answer = service.introspection.get("/v1/introspection", headers=rebound)
    assert (answer.status_code, "allowed_hosts" in message(answer)) == (421, True)


def test_a_page_whose_name_was_rebound_changes_nothing(service: Service) -> None:
    uuid = service.enrol()
    rebound = {"Host": "evil.example:6385", "Sec-Fetch-Site": "same-origin"}
    assert service.bare_metal.delete(f"/v1/nodes/{uuid}", headers=rebound).status_code == 421
    assert service.node(uuid).uuid == uuid


def test_http_1_1_without_a_host_is_refused_except_for_bmcs_that_read_images(service: Service) -> None:
    for path, status in (("/v1/nodes", 400), ("/healthcheck", 400), ("/v1/media/unknown.iso", 404)):
        for version, expected in (("1.1", status), ("1.0", 404 if status == 404 else 200)):
            environ = falcon.testing.create_environ(path, http_version=version)
            environ.pop("HTTP_HOST", None)
            assert _status(service, environ) == expected, (path, version)


def _status(service: Service, environ: dict[str, Any]) -> int:
    seen: list[str] = []
    service.bare_metal._client.app(environ, lambda status, _headers, _exc=None: seen.append(status))
    return int(seen[0].split()[0])
