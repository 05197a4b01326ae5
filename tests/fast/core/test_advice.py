"""What is wrong with a node, in parts: the reason, the cause without it, and commands that are complete."""

from __future__ import annotations

from typing import Any

from ferroscope.core.delivery import Fail
from ferroscope.transition import explain
from ferroscope_client.core import advice
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each

NODE: dict[str, Any] = {
    "uuid": "7f0c6e0e-0000-4000-8000-000000000001", "name": "rack 1", "driver": "redfish", "driver_info": {},
    "provision_state": "inspect failed", "inbox": False, "last_error": None,
}  # fmt: skip


@each("reason", list(Reason))
def test_a_last_error_is_taken_apart_as_it_was_put_together(reason: Reason) -> None:
    error = explain(Fail(reason, "something (odd) happened."))
    assert advice.reason_of(error) is reason
    assert advice.cause_of(error) == "something (odd) happened."


@each("error", [None, "", "the BMC said (oh dear)", "a text of another system."])
def test_a_text_without_a_code_is_its_own_cause(error: str | None) -> None:
    assert (advice.reason_of(error), advice.cause_of(error)) == (None, error or "")


def test_why_something_failed_comes_before_what_was_tried() -> None:
    said = "reading the power state of n1 failed (simulator 127.0.0.2:6390): timed out; gave up after 3 attempts"
    cause = "timed out; gave up after 3 attempts (reading the power state; simulator 127.0.0.2:6390)"
    assert advice.cause_of(explain(Fail(Reason.BMC_UNREACHABLE, said))) == cause
    assert (
        advice.cause_of("setting the boot device of n1 failed: no: not now") == "no: not now (setting the boot device)"
    )


def test_commands_name_the_node_and_leave_nothing_to_fill_in() -> None:
    error = explain(Fail(Reason.BMC_CREDENTIALS, "the BMC refused the login"))
    found = advice.commands(NODE | {"last_error": error, "driver_info": {"redfish_password": "******"}})
    assert "ferroscope node set 'rack 1' -d redfish_password=@-" in found
    assert not [one for one in found if "NODE" in one or "VALUE" in one]


@each("reason", list(Reason))
def test_what_was_wrong_is_corrected_before_it_is_tried_again(reason: Reason) -> None:
    info = {"redfish_address": "https://192.0.2.7", "redfish_password": "******"}
    node = NODE | {"last_error": explain(Fail(reason, "why")), "driver_info": info, "provision_state": "enroll"}
    verbs = [" ".join(command.split()[1:3]) for command in advice.commands(node)]
    (trial,) = (at for at, verb in enumerate(verbs) if verb in ("node manage", "bmc try"))
    assert not {"node set", "node approve", "bmc set-password"}.intersection(verbs[trial:])


def test_a_command_that_names_a_ca_gives_the_password_again() -> None:
    error = explain(Fail(Reason.BMC_CERTIFICATE, "self-signed certificate"))
    found = advice.commands(NODE | {"last_error": error, "driver_info": {"redfish_password": "******"}})
    assert found[0] == "ferroscope node set 'rack 1' -d redfish_verify_ca=bmc-ca.pem -d redfish_password=@-"


def test_a_command_that_corrects_the_address_gives_the_password_again() -> None:
    error = explain(Fail(Reason.BMC_NOT_REDFISH, "a web page"))
    known = {"redfish_address": "https://192.0.2.7", "redfish_username": "root"}
    command = "ferroscope node set 'rack 1' -d 'redfish_address=<new address>'"
    assert command in advice.commands(NODE | {"last_error": error, "driver_info": known})
    found = advice.commands(NODE | {"last_error": error, "driver_info": known | {"redfish_password": "******"}})
    assert f"{command} -d redfish_password=@-" in found


def test_a_node_that_waits_while_unknown_machines_call_leads_to_the_inbox() -> None:
    waits = NODE | {"provision_state": "inspect wait"}
    assert "ferroscope node inbox" not in advice.commands(waits)
    assert "ferroscope node inbox" in advice.commands(waits, callers=1)
    assert "1 unknown machine called" in advice.hint(waits, "1 unknown machine")
    refused = [{"macs": ["52:54:00:00:00:01"]}, {"macs": ["52:54:00:00:00:02"]}]
    added = "ferroscope node set 'rack 1' --add-port 52:54:00:00:00:01"
    assert advice.commands(waits, 1, None, refused[:1])[0] == added
    assert advice.commands(waits, 2, None, refused)[0] == "ferroscope node inbox"
    worker = Finding("no-worker", "wrong", "no worker is alive", "start one: ferroscope worker")
    assert advice.commands(waits, 0, worker)[0] == "ferroscope worker"
