"""What a BMC, or whatever is at its address, has answered is shown to callers of the whole service only."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from ferroscope import transition
from ferroscope.api.auth.identity import local
from ferroscope.core.bmc_texts import error_without_answer
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Inspection, Node
from ferroscope.db import Transaction
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.api.callers import As, service_for
from tests.api.service import Service
from tests.support import databases

NODE = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
ANSWER = "GET /redfish/v1 at http://10.0.0.5: the BMC refused (HTTP 400: INTERNAL-DETAIL token=abc)"
IDENTITIES = {
    "root": local("root", "token", ["reader"]),
    "owner": local("owner", "token", ["admin"], project="p"),
    "lessee": local("lessee", "token", ["admin"], project="l"),
}
PLACES = [
    f"/v1/nodes/{NODE}",
    "/v1/nodes/detail",
    "/v1/nodes?fields=last_error",
    f"/v1/nodes/{NODE}/states",
    f"/v1/nodes/{NODE}/timeline",
    f"/v1/nodes/{NODE}/inspections",
    f"/v1/nodes/{NODE}/history",
    f"/v1/nodes/{NODE}/history?detail=true",
    f"/v1/introspection/{NODE}",
    "/v1/introspection",
]


@pytest.fixture
def service(tmp_path: Any) -> Service:
    return service_for(databases.sqlite(tmp_path), IDENTITIES)


def failed(service: Service, reason: Reason) -> None:
    """Let the node's inspection and one command fail for this reason, with an answer in the message."""
    inspection = str(uuid.uuid4())

    def work(tx: Transaction) -> None:
        failure = Fail(reason, ANSWER)
        node = Node(
            uuid=NODE,
            driver="fake-hardware",
            owner="p",
            attributes={"lessee": "l"},
            inspection=inspection,
            state=State.ERROR,
            provision_state=Provision.INSPECT_FAILED,
            last_error=transition.explain(failure),
            created_at=tx.now,
        )
        tx.nodes.add(node)
        done = Inspection(uuid=inspection, node=NODE, state=State.ERROR, started_at=1.0, error=ANSWER)
        tx.inspections.add(done)
        tx.inspections.update(inspection, reason=str(reason))
        for own in (node, Node(uuid=NODE, driver="fake-hardware")):
            entry = transition.step(
                own, "retry", ANSWER, process="w", reason=str(reason), detail={"after": 5.0, "text": ANSWER}
            )
            tx.journal.append([entry])

    service.store.write(work)


def test_a_project_gets_the_reason_and_the_advice_but_not_the_answer(service: Service) -> None:
    reason = Reason.BMC_REFUSED
    failed(service, reason)
    for path in PLACES:
        full, owner, lessee = (As(service.bare_metal, who)("GET", path).text for who in ("root", "owner", "lessee"))
        assert "INTERNAL-DETAIL" in full, path
        for text in (owner, lessee):
            assert "INTERNAL-DETAIL" not in text, path
            assert "10.0.0.5" not in text, path
    shown = As(service.bare_metal, "owner")("GET", f"/v1/nodes/{NODE}").json["last_error"]
    assert f"({reason})" in shown
    timeline = As(service.bare_metal, "owner")("GET", f"/v1/nodes/{NODE}/timeline").json
    (step,) = timeline["entries"]
    assert (step["reason"], step["detail"]) == (str(reason), {"after": 5.0})
    event = As(service.bare_metal, "owner")("GET", f"/v1/nodes/{NODE}/history/{step['uuid']}")
    assert "INTERNAL-DETAIL" not in json.dumps(event.json)


def test_other_errors_are_shown_in_full(service: Service) -> None:
    failed(service, Reason.HOOK_FAILED)
    for path in PLACES:
        assert "INTERNAL-DETAIL" in As(service.bare_metal, "owner")("GET", path).text, path


def test_an_answer_that_has_a_code_in_it_is_not_kept_either() -> None:
    for answer in ("x (bmc-silent) y", "(bmc-refused) and (hook-failed)", "(hook-failed). "):
        text = transition.explain(Fail(Reason.BMC_REFUSED, f"the BMC refused (HTTP 404: {answer})"))
        reduced = error_without_answer(text)
        assert "HTTP 404" not in reduced
        assert "(bmc-refused)" in reduced
