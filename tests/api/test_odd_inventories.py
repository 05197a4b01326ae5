"""One machine of each kind of odd inventory: it is inspected, or its node says why not, and no answer is a 5xx.

``tests/nightly/fuzz`` has more of them, on each database.
"""

from __future__ import annotations

import pytest

from ferroscope.config.options import InspectorSettings
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.api import working
from tests.api.service import Service
from tests.corpus import ALL
from tests.support.fuzz.inventories import KINDS, corpus, make

_SEEDS = (1, 2)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_machine_with_an_odd_inventory_is_inspected_or_its_node_says_why_not(database_url: str, seed: int) -> None:
    inspect(database_url, KINDS, seed)


def inspect(database_url: str, count: int, seed: int) -> None:
    """Inspect so many machines with odd inventories."""
    service = Service(database_url, sections={"inspector": InspectorSettings(hooks=ALL)})
    worker, bases = working.worker(service), corpus()
    inspected = 0
    for number in range(count):
        odd = make(number, seed, bases)
        node = service.enrol()
        service.wait(node, mac=odd.mac)
        answer = service.call_back(odd.body)
        assert answer.status_code < 500, (odd.kind, answer.text)
        if answer.status_code == 202:
            working.work(service, node, worker)
        found = service.node(node)
        if found.state is State.FINISHED:
            inspected += 1
            continue
        assert found.last_error, odd.kind
        assert f"({Reason.INTERNAL})" not in found.last_error, (odd.kind, found.last_error)
        newest = service.bare_metal.get(f"/v1/nodes/{node}/timeline").json["inspections"][0]
        steps = {entry["step"] for entry in newest["entries"]}
        assert steps & {"failed", "callback-refused"}, (odd.kind, steps)
    assert inspected > count / 2
