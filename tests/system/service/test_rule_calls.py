"""The action ``api-call`` against a real HTTP server: where it goes, what is tried again, what fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ferroscope.config.options import InspectionRuleSettings
from ferroscope.hooks.pipeline import from_settings
from ferroscope.remote.bounded_http import WebClient
from ferroscope.worker.process import RuleStep
from ferroscope.worker.start import PxeFilterWait, RebootThrottle
from ferroscope.worker.tasks import build
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service, settings
from tests.support import examples
from tests.support.http_target import HttpTarget


@pytest.fixture
def target() -> Iterator[HttpTarget]:
    with HttpTarget() as server:
        yield server


@pytest.fixture
def service(target: HttpTarget) -> Service:
    """Return a worker whose rules may call below ``/hooks`` of the target."""
    rules = InspectionRuleSettings(api_call_targets=(f"{target.url}/hooks",))
    made = Service(msgspec.structs.replace(settings(), inspection_rules=rules))
    throttle = RebootThrottle(
        0.0, holder="m1", store=made.store, clock=made.clock, profile=made.settings.lease.numbers()
    )
    pxe_filter = PxeFilterWait()
    made.worker.tasks = build(from_settings(made.settings.inspector), throttle, pxe_filter, RuleStep(web=WebClient()))
    return made


def inspect(service: Service, url: str, **args: Any) -> None:
    action = {"op": "api-call", "args": {"url": url, "backoff_factor": 0.0, **args}}
    service.store.write(lambda tx: tx.rules.add(examples.rule(actions=[action])))
    service.start()
    service.work()
    service.call_back(serial="a b")
    service.work()


def test_a_call_is_made_with_its_headers_and_reported_without_its_query(service: Service, target: HttpTarget) -> None:
    inspect(service, f"{target.url}/hooks/new?serial={{plugin_data[serial]}}", headers={"X-Node": "{node.name}"})
    ((path, headers, _),) = target.seen
    assert (path, headers["X-Node"]) == ("/hooks/new?serial=a%20b", "one")
    assert service.node.state is State.FINISHED
    told = [entry.message for entry in service.journal if entry.step == "rules"]
    assert any(message.endswith(f"called {target.url}/hooks/new: 200") for message in told)


def test_what_is_transient_is_tried_again(service: Service, target: HttpTarget) -> None:
    target.statuses = [503, 429, 200]
    inspect(service, f"{target.url}/hooks")
    assert len(target.seen) == 3
    assert service.node.state is State.FINISHED


def test_what_stays_wrong_fails_the_inspection(service: Service, target: HttpTarget) -> None:
    target.statuses = [503]
    inspect(service, f"{target.url}/hooks", retries=2)
    assert len(target.seen) == 3
    assert service.inspection.reason == "rule-failed"
    assert "/hooks answered 503" in (service.node.last_error or "")


def test_a_refusal_is_not_tried_again(service: Service, target: HttpTarget) -> None:
    target.statuses = [403]
    inspect(service, f"{target.url}/hooks")
    assert len(target.seen) == 1
    assert service.node.state is State.ERROR


def test_a_redirect_is_not_followed(service: Service, target: HttpTarget) -> None:
    target.statuses, target.headers = [302, 200], {"Location": "/elsewhere"}
    inspect(service, f"{target.url}/hooks")
    assert [seen.path for seen in target.seen] == ["/hooks"]
    assert service.node.state is State.FINISHED


@pytest.mark.parametrize("path", ["/admin", "/hooks/../admin", "/hooks/%2e%2e/admin", "/hooksy"])
def test_nothing_else_is_called(service: Service, target: HttpTarget, path: str) -> None:
    inspect(service, f"{target.url}{path}")
    assert target.seen == []
    assert service.inspection.reason == "rule-failed"


def test_a_proxy_must_be_allowed_too(service: Service, target: HttpTarget) -> None:
    inspect(service, f"{target.url}/hooks", proxies={"http": "http://127.0.0.1:9"})
    assert target.seen == []
    assert service.node.state is State.ERROR


def test_a_server_that_is_not_there_fails_the_inspection(service: Service, target: HttpTarget) -> None:
    target.shutdown()
    target.server_close()
    inspect(service, f"{target.url}/hooks", retries=1, timeout=0.5)
    assert "/hooks did not answer" in (service.node.last_error or "")
