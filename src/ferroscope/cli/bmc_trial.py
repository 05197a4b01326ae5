"""``ferroscope bmc try``: have a worker contact the BMCs of nodes now, and say what they answered."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from ferroscope.cli import doing
from ferroscope.cli.client import Api, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.node.actions import each, timeout_option
from ferroscope.cli.output import Output, with_api
from ferroscope.cli.screen import Waiting
from ferroscope.cli.selection import Wanted, resolve, selectors
from ferroscope.core.states import UNDER_WAY, Provision

_POLL: Final = 0.5
_POSSIBLE: Final = frozenset(Provision) - set(UNDER_WAY) - {Provision.VERIFYING}
# The steps with which a trial ends.
_ENDS: Final = ("verified", "failed", "dropped")


@click.command("try")
@selectors
@timeout_option
@with_api
def try_bmc(api: Api, out: Output, *, wanted: Wanted, timeout: float) -> None:
    """Try the BMCs of nodes now, and wait for their answers.

    Nothing else happens: the nodes keep their states, and the machines their power. A BMC that answers ends the pause
    in which it is left alone after timeouts.
    """
    deadline = time.monotonic() + timeout

    def ask(node: Json) -> None:
        node["tried"] = len(_steps(api, node))
        api.post(node_path(node["uuid"], "bmc", "trial"), None)

    def answered(node: Json, waiting: Waiting) -> None:
        while (end := _end(steps := _steps(api, node)[node["tried"] :])) is None:
            left = deadline - time.monotonic()
            said = doing.told(steps[-1]) if steps else ""
            if left <= 0:
                raise Failure(
                    f"no answer from the BMC of {label(node)} within {timeout:g} s{f' ({said})' if said else ''}",
                    exit_code=Exit.TIMED_OUT,
                    advice=f"see its timeline: ferroscope node timeline {label(node)}",
                )
            waiting.say(f"{label(node)}: its BMC has not answered yet{f' ({said})' if said else ''}", left)
            time.sleep(_POLL)
        if end["step"] != "verified":
            raise Failure(end["message"], advice=end["hint"])

    each(out, resolve(api, wanted, states=_POSSIBLE), ask, done="the BMC answers", wait=answered)


def _steps(api: Api, node: Json) -> list[Any]:
    found: list[Any] = api.get(node_path(node["uuid"], "timeline"), limit=1)["entries"]
    return found


def _end(steps: list[Any]) -> Any:
    return next((one for one in steps if one["step"] in _ENDS), None)
