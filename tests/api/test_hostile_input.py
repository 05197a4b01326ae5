"""Input that is meant to hurt: never a 5xx, on any of the databases."""

from __future__ import annotations

import gzip
import json
from typing import Any

import falcon.testing
import pytest

from ferroscope.core.states import Event
from tests.api.service import Service, callback_body, fault
from tests.support import examples

HUGE = 10**400
STRANGE_TEXTS = (
    "",
    " ",
    "'; DROP TABLE nodes; --",
    "\x01\x7f",
    "\u202e",
    "\U0001f600 \u00e9\u4e16",
    "e\u0301",
    "%s",
    "x" * 100_000,
)


def test_strange_documents_are_stored_and_given_back(everywhere: Service) -> None:
    extra: dict[str, Any] = {f"k{i}{text[:20]}": text for i, text in enumerate(STRANGE_TEXTS)}
    extra |= {"int": HUGE, "negative": -HUGE, "float": 1.5e308, "tiny": 5e-324, "nested": [[[{"a": None}]]]}
    ident = everywhere.enrol(extra=extra)
    assert everywhere.bare_metal.get(f"/v1/nodes/{ident}").json["extra"] == extra


@pytest.mark.parametrize(
    "value",
    [
        '"\\u0000"',
        '{"\\u0000": 1}',
        '"\\ud800"',
        "1e999",
        "9" * 5000,
        "[" * 30 + "]" * 30,
        "[" * 200_000,
    ],
)
@pytest.mark.parametrize("field", ["extra", "name"])
def test_what_cannot_be_stored_is_400(service: Service, field: str, value: str) -> None:
    text = value if field == "name" else f'{{"a": {value}}}'
    answer = service.bare_metal.post("/v1/nodes", f'{{"driver": "sim", "{field}": {text}}}')
    assert answer.status_code == 400
    assert fault(answer)
    ident = service.enrol()
    patch = f'[{{"op": "add", "path": "/{field}", "value": {text}}}]'
    assert service.bare_metal.call("PATCH", f"/v1/nodes/{ident}", patch).status_code == 400


def test_strange_texts_in_columns_never_hurt(everywhere: Service) -> None:
    for field in ("name", "owner", "conductor_group", "lessee"):
        for text in STRANGE_TEXTS:
            answer = everywhere.bare_metal.post("/v1/nodes", {"driver": "sim", field: text})
            assert answer.status_code in (201, 400), answer.text
            if answer.status_code == 201 and text and field != "conductor_group":
                assert everywhere.bare_metal.get(f"/v1/nodes/{answer.json['uuid']}").json[field] == text


def test_strange_texts_in_queries_never_hurt(everywhere: Service) -> None:
    everywhere.enrol()
    for text in (*STRANGE_TEXTS[:-1], "%00", "%ff", "%ed%a0%80"):
        for name in ("owner", "driver", "resource_class", "marker", "sort_key", "provision_state", "shard", "limit"):
            status = everywhere.bare_metal.get(f"/v1/nodes?{name}={text.replace(' ', '%20')}").status_code
            assert status in (200, 400, 404), (name, text)


def test_strange_callbacks_never_hurt(everywhere: Service) -> None:
    ident = everywhere.enrol()
    mac = everywhere.wait(ident)
    for i, text in enumerate(STRANGE_TEXTS):
        body = callback_body(mac, serial=f"{i}{text}", huge=HUGE, bmc_address=text[:5000])
        assert everywhere.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
        everywhere.consume()
    everywhere.step(ident, Event.CONTINUE)
    everywhere.step(ident, Event.FINISH)
    unprocessed = everywhere.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json
    assert unprocessed["inventory"]["huge"] == HUGE


def test_many_unknown_addresses_are_one_lookup(everywhere: Service) -> None:
    macs = [examples.mac() for _ in range(500)]
    answer = everywhere.bare_metal.post("/v1/continue_inspection", callback_body(*macs), version="1.1")
    assert answer.status_code == 404


def test_documents_over_a_mebibyte_are_413(service: Service) -> None:
    body = json.dumps({"driver": "sim", "extra": {"a": "x" * 1024 * 1024}})
    assert service.bare_metal.post("/v1/nodes", body).status_code == 413


def test_wrong_content_length_is_harmless(service: Service) -> None:
    answer = service.bare_metal.post("/v1/nodes", '{"driver": "sim"}', headers={"Content-Length": "5"})
    assert answer.status_code == 400


@pytest.mark.parametrize("length", ["abc", "-5", "9" * 40])
def test_senseless_content_length_is_4xx(service: Service, length: str) -> None:
    environ = falcon.testing.create_environ("/v1/nodes", method="POST", host="localhost", port=6385)
    environ["CONTENT_LENGTH"] = length
    answers = falcon.testing.StartResponseMock()
    body = b"".join(service.app(environ, answers))
    assert answers.status[:3] in ("400", "413")
    assert b"faultstring" in body


def test_options_and_unknown_methods_are_harmless(service: Service) -> None:
    assert service.bare_metal.call("OPTIONS", "/v1/nodes").status_code == 200
    assert service.bare_metal.call("TRACE", "/v1/nodes").status_code == 405


def test_content_type_does_not_matter(service: Service) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"):
        headers = {"Content-Type": kind}
        assert service.bare_metal.post("/v1/nodes", '{"driver": "sim"}', headers=headers).status_code == 201


def test_a_fault_of_ours_is_500_without_details(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_work: Any, **_options: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(service.store, "read", broken)
    answer = service.bare_metal.get("/v1/nodes")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["Openstack-Request-Id"] in fault(answer)


@pytest.mark.parametrize("encoding", ["gzip", "x" * 300])
def test_a_compressed_body_is_refused_as_such(service: Service, encoding: str) -> None:
    body = gzip.compress(json.dumps(callback_body(examples.mac())).encode())
    for answer in (
        service.call_back(body, headers={"Content-Encoding": encoding}),
        service.bare_metal.post("/v1/nodes", body, headers={"Content-Encoding": encoding}),
    ):
        assert answer.status_code == 400
        assert "Content-Encoding" in fault(answer)
        assert "uncompressed" in fault(answer)
    plain = {"Content-Encoding": "identity"}
    assert service.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, headers=plain).status_code == 201
