"""What a web page makes an operator's browser send changes nothing, on either API."""

from __future__ import annotations

import pytest

from tests.integration.api.service import Service, fault, message

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


def test_clients_send_neither_header_and_are_served(service: Service) -> None:
    assert service.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}).status_code == 201
