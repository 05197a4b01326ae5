"""``ferroscope bmc``: try the BMCs of nodes; the group of all commands for BMCs."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from ferroscope_client.cli import newest_step
from ferroscope_client.cli.bmc_password import set_password
from ferroscope_client.cli.lookup import label
from ferroscope_client.cli.node.actions import each, timeout_option
from ferroscope_client.cli.output import Group, Output, with_api
from ferroscope_client.cli.screen import Waiting
from ferroscope_client.cli.selection import NodeSelection, resolve, selectors
from ferroscope_client.client import Client, Json, WaitTimeoutError, node_path
from ferroscope_client.core.states import UNDER_WAY, Provision
from ferroscope_client.errors import Exit, Failure

_POSSIBLE: Final = frozenset(Provision) - set(UNDER_WAY) - {Provision.VERIFYING}
# The steps with which a trial ends.
_ENDS: Final = ("verified", "failed", "dropped")


@click.group(cls=Group)
def bmc() -> None:
    """Find BMCs in networks, try them, change their passwords, and report what a BMC answers."""


bmc.add_command(set_password)


@bmc.command("try")
@selectors
@timeout_option
@with_api
def try_bmc(api: Client, out: Output, *, wanted: NodeSelection, timeout: float) -> None:
    """Try the BMCs of nodes now, and wait for their answers.

    The nodes keep their states, and the machines their power. An answer of a BMC ends the pause after its timeouts.
    """
    deadline = time.monotonic() + timeout

    def ask(node: Json) -> None:
        node["tried"] = len(_steps(api, node))
        api.post(node_path(node["uuid"], "bmc", "trial"), None)

    def await_end(node: Json, waiting: Waiting) -> None:
        def new_steps(timeline: Json) -> list[Any]:
            return list(timeline["entries"][node["tried"] :])

        def say(timeline: Json, seconds_left: float) -> None:
            waiting.say(f"{label(node)}: its BMC has not answered yet{_newest(new_steps(timeline))}", seconds_left)

        try:
            timeline = api.wait(
                node_path(node["uuid"], "timeline"),
                lambda timeline: _end(new_steps(timeline)) is not None,
                until=deadline,
                waiting=say,
                limit=1,
            )
        except WaitTimeoutError as exc:
            raise Failure(
                f"no answer from the BMC of {label(node)} within {timeout:g} s{_newest(new_steps(exc.newest))}",
                exit_code=Exit.TIMED_OUT,
                advice=f"see its timeline: ferroscope node timeline {label(node)}",
            ) from None
        end = _end(new_steps(timeline))
        if end["step"] != "verified":
            raise Failure(end["message"], advice=end["hint"])
        node["answer"] = end["message"]

    each(out, resolve(api, wanted, states=_POSSIBLE), ask, done=lambda node: node["answer"], wait=await_end)


def _steps(api: Client, node: Json) -> list[Any]:
    entries: list[Any] = api.get(node_path(node["uuid"], "timeline"), limit=1)["entries"]
    return entries


def _newest(steps: list[Any]) -> str:
    """Return the newest step in parentheses."""
    step = newest_step.message(steps[-1]) if steps else ""
    return f" ({step})" if step else ""


def _end(steps: list[Any]) -> Any:
    return next((step for step in steps if step["step"] in _ENDS), None)
