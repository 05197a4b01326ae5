"""The verbs of states/provision, power, boot device, maintenance, validation."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope import transition
from ferroscope.core.states import Event
from ferroscope_client.core.states import State
from tests.api.service import DRIVERS, Service, fault


def put(service: Service, ident: str, target: str, version: str = "1.95") -> Any:
    return service.client(version).put(f"/v1/nodes/{ident}/states/provision", {"target": target})


def provision_state(service: Service, ident: str) -> str:
    return str(service.bare_metal.get(f"/v1/nodes/{ident}/states").json["provision_state"])


def test_manage_verifies_first(service: Service) -> None:
    ident = service.enrol(name="n")
    answer = put(service, "n", "manage")
    assert (answer.status_code, answer.content) == (202, b"")
    assert answer.headers["Location"].endswith("/v1/nodes/n/states")
    states = service.bare_metal.get(f"/v1/nodes/{ident}/states").json
    assert (states["provision_state"], states["target_provision_state"]) == ("verifying", "manageable")
    assert [request.event for request in service.pending(ident)] == [Event.VERIFY]


def test_verbs_of_resting_nodes(service: Service) -> None:
    ident = service.enrol()
    service.inspect(ident)
    for verb, state in (("provide", "available"), ("manage", "manageable"), ("provide", "available")):
        assert put(service, ident, verb).status_code == 202
        assert provision_state(service, ident) == state


def test_a_start_that_an_abort_would_end_is_refused_and_accepted_after_it(service: Service) -> None:
    ident = service.enrol()
    assert put(service, ident, "inspect").status_code == 202
    assert put(service, ident, "abort").status_code == 202
    refused = put(service, ident, "inspect")
    assert (refused.status_code, "is being aborted" in fault(refused)) == (409, True)
    assert [request.event for request in service.pending(ident)] == [Event.INSPECT, Event.ABORT]
    service.consume()
    service.step(ident, Event.ABORT)
    assert provision_state(service, ident) in ("manageable", "inspect failed")
    assert put(service, ident, "inspect").status_code == 202
    assert [request.event for request in service.pending(ident)] == [Event.INSPECT]


@pytest.mark.parametrize(
    ("prepare", "verb", "state", "allowed"),
    [
        ("enrol", "provide", "enroll", "inspect, manage"),
        ("wait", "inspect", "inspect wait", "abort"),
        ("inspect", "manage", "manageable", "inspect, provide"),
        ("verify", "inspect", "verifying", "nothing"),
    ],
)
def test_illegal_verb_is_409_with_the_state_and_what_is_allowed(
    service: Service, prepare: str, verb: str, state: str, allowed: str
) -> None:
    ident = service.enrol()
    if prepare == "wait":
        service.wait(ident)
    elif prepare == "inspect":
        service.inspect(ident)
    elif prepare == "verify":
        put(service, ident, "manage")
    answer = put(service, ident, verb)
    assert answer.status_code == 409
    assert f" {state} " in fault(answer)
    assert f": {allowed}" in fault(answer)
    assert provision_state(service, ident) == state


@pytest.mark.parametrize(
    ("body", "version", "status"),
    [
        ({"target": "active"}, "1.95", 400),
        ({}, "1.95", 400),
        ({"target": "inspect", "clean_steps": []}, "1.95", 400),
        ({"target": "manage"}, "1.3", 406),
        ({"target": "inspect"}, "1.5", 406),
        ({"target": "abort"}, "1.12", 406),
    ],
)
def test_bad_provision_calls(service: Service, body: Any, version: str, status: int) -> None:
    ident = service.enrol()
    answer = service.client(version).put(f"/v1/nodes/{ident}/states/provision", body)
    assert answer.status_code == status
    assert fault(answer)


def test_abort_of_a_wait_needs_its_version(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    assert put(service, ident, "abort", "1.40").status_code == 406
    assert put(service, ident, "abort", "1.41").status_code == 202


def test_inspect_wait_is_inspecting_to_old_callers(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    assert service.client("1.38").get(f"/v1/nodes/{ident}").json["provision_state"] == "inspecting"
    assert service.client("1.39").get(f"/v1/nodes/{ident}").json["provision_state"] == "inspect wait"
    assert service.client("1.38").get(f"/v1/nodes/{ident}/states").json["provision_state"] == "inspecting"


@pytest.mark.parametrize(
    ("target", "wanted"), [("power on", "power on"), ("power off", "power off"), ("rebooting", "power on")]
)
def test_power_command_is_queued(service: Service, target: str, wanted: str) -> None:
    ident = service.enrol()
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": target})
    assert (answer.status_code, answer.content) == (202, b"")
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["target_power_state"] == wanted
    (request,) = service.pending(ident)
    assert (request.event, request.payload) == (Event.SET_POWER, {"target": target})


@pytest.mark.parametrize(
    ("body", "version", "status"),
    [
        ({"target": "soft power off"}, "1.26", 406),
        ({"target": "power on", "timeout": 5}, "1.26", 406),
        ({"target": "power on", "timeout": "soon"}, "1.95", 400),
        ({}, "1.95", 400),
    ],
)
def test_bad_power_calls(service: Service, body: Any, version: str, status: int) -> None:
    ident = service.enrol()
    assert service.client(version).put(f"/v1/nodes/{ident}/states/power", body).status_code == status
    assert service.pending(ident) == []


def test_boot_device_is_queued_and_remembered(service: Service) -> None:
    ident = service.enrol()
    path = f"/v1/nodes/{ident}/management/boot_device"
    assert service.bare_metal.get(path).json == {"boot_device": "pxe", "persistent": False}
    answer = service.bare_metal.put(path, {"boot_device": "pxe", "persistent": "true"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert service.bare_metal.get(path).json == {"boot_device": "pxe", "persistent": True}
    (request,) = service.pending(ident)
    assert (request.event, request.payload) == (Event.SET_BOOT_DEVICE, {"boot_device": "pxe", "persistent": True})
    assert "pxe" in service.bare_metal.get(f"{path}/supported").json["supported_boot_devices"]
    assert service.bare_metal.put(path, {"boot_device": "floppy"}).status_code == 400
    assert service.bare_metal.put(path, {"boot_device": "pxe", "persistent": 7}).status_code == 400


def test_maintenance(service: Service) -> None:
    ident = service.enrol()
    path = f"/v1/nodes/{ident}/maintenance"
    assert service.bare_metal.put(path, {"reason": "fan"}).status_code == 202
    node = service.bare_metal.get(f"/v1/nodes/{ident}").json
    assert (node["maintenance"], node["maintenance_reason"]) == (True, "fan")
    assert service.bare_metal.put(path).status_code == 202
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["maintenance_reason"] is None
    assert service.bare_metal.delete(path).status_code == 202
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["maintenance"] is False
    assert service.bare_metal.put(path, {"why": "fan"}).status_code == 400


def test_states_grow_with_the_version(service: Service) -> None:
    ident = service.enrol()
    base = {"console_enabled", "last_error", "power_state", "provision_state", "provision_updated_at"} | {
        "target_power_state",
        "target_provision_state",
    }
    assert set(service.client("1.11").get(f"/v1/nodes/{ident}/states").json) == base
    raid = base | {"raid_config", "target_raid_config"}
    assert set(service.client("1.12").get(f"/v1/nodes/{ident}/states").json) == raid
    newest = raid | {"boot_mode", "secure_boot"}
    assert set(service.client("1.75").get(f"/v1/nodes/{ident}/states").json) == newest


def test_everything_of_an_unknown_node_is_404(service: Service) -> None:
    bodies = {
        "states/provision": {"target": "manage"},
        "states/power": {"target": "power on"},
        "management/boot_device": {"boot_device": "pxe"},
    }
    reads = (
        "states",
        "validate",
        "traits",
        "management/boot_device",
        "inventory",
        "history",
        "timeline",
        "inspections",
    )
    calls = [("GET", path) for path in reads] + [("PUT", path) for path in (*bodies, "maintenance")]
    for method, path in calls:
        answer = service.bare_metal.call(
            method, f"/v1/nodes/nobody/{path}", bodies.get(path) if method == "PUT" else None
        )
        assert (answer.status_code, "nobody" in fault(answer)) == (404, True), (method, path)


def test_what_is_refused_during_an_inspection_says_what_a_caller_can_do(service: Service) -> None:
    ident = service.enrol()
    put(service, ident, "inspect")
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "power on"})
    assert answer.status_code == 409
    assert "starting" in fault(answer)
    assert "abort" in fault(answer)
    service.fail(ident)
    again = service.introspection.post(f"/v1/introspection/{ident}/abort")
    assert "inspect" in again.text


def test_a_node_whose_power_its_driver_could_not_switch_is_not_inspected(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(DRIVERS["sim"]), "validate", lambda *_: "driver_info needs an address")
    ident = service.enrol(driver="sim", driver_info={})
    assert service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "inspect"}).status_code == 400
    assert service.introspection.post(f"/v1/introspection/{ident}").status_code == 400
    assert (service.node(ident).state, service.pending(ident)) == (State.NONE, [])
    assert service.introspection.post(f"/v1/introspection/{ident}?manage_boot=false").status_code == 202


def test_commands_that_a_bmc_does_not_keep_up_with_do_not_fill_the_queue(service: Service) -> None:
    ident, other = service.enrol(), service.enrol()
    calls = [("states/power", {"target": "power on"}), ("states/power", {"target": "rebooting"}), ("bmc/trial", None)]
    statuses = set()
    for number in range(3 * transition.MAX_WAITING_COMMANDS):
        path, body = calls[number % len(calls)]
        call = service.bare_metal.put if body else service.bare_metal.post
        statuses.add(call(f"/v1/nodes/{ident}/{path}", body).status_code)
    assert statuses == {202, 409}
    assert len(service.pending(ident)) == transition.MAX_WAITING_COMMANDS
    assert service.bare_metal.put(f"/v1/nodes/{other}/states/power", {"target": "power on"}).status_code == 202
    while service.pending(ident):
        service.consume()
    assert service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "power on"}).status_code == 202
