"""Messages for users of the command line mention commands, not API calls."""

from __future__ import annotations

from ferroscope_client.client import as_commands


def test_calls_become_the_commands_that_do_them() -> None:
    assert as_commands("approve it first: POST /v1/nodes/n1/approve.") == (
        "approve it first: ferroscope node approve n1."
    )
    message = as_commands('abort first: PUT /v1/nodes/n1/states/provision with {"target": "abort"}.')
    assert message == "abort first: ferroscope node abort n1."
    assert as_commands("Set ipmi_password in the same request, or remove") == (
        "Give it again with -d ipmi_password=@-, or remove"
    )
    assert as_commands("No valid host was found. Reason: Driver 'ipmii' is not enabled.") == (
        "Driver 'ipmii' is not enabled."
    )
    assert "'ferroscope driver list'" in as_commands("GET /v1/drivers lists those that are.")
