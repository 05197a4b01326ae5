"""A power state that is not known for certain: null in the Bare Metal API, and a word for it on the machine's page."""

from __future__ import annotations

import pytest

from tests.api.browsing import IDENTITIES, Browser, add
from tests.api.callers import service_for
from tests.api.service import Service


@pytest.fixture
def service(sqlite_url: str) -> Service:
    return service_for(sqlite_url, IDENTITIES)


@pytest.mark.parametrize(
    ("power", "target", "words"),
    [
        (None, None, "unknown"),
        (None, "power on", "changing, becoming power on"),
        ("power off", "power on", "power off, becoming power on"),
    ],
)
def test_what_is_not_certain_is_null_in_the_api_and_named_on_the_page(
    service: Service, power: str | None, target: str | None, words: str
) -> None:
    uuid = add(service, "one", power_state=power, target_power_state=target)
    browser = Browser(service).log_in("root")
    assert f"<dt>Power</dt><dd>{words}</dd>" in browser.get(f"/ui/machines/{uuid}").text


def test_the_states_of_a_node_have_null_and_not_a_word_of_ours(sqlite_url: str) -> None:
    service = Service(sqlite_url)
    uuid = add(service, "one", power_state=None, target_power_state="power on")
    for path in (f"/v1/nodes/{uuid}", f"/v1/nodes/{uuid}/states"):
        shown = service.client().get(path).json
        assert (shown["power_state"], shown["target_power_state"]) == (None, "power on")
