"""``ferroscope node manage | provide | abort | power``: ask the service to bring nodes somewhere.

The service answers at once and does it later; ``--wait`` waits for the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import click

from ferroscope.cli.client import Api, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label, node_argument, nodes_argument
from ferroscope.cli.node.bulk import each
from ferroscope.cli.output import Output, with_api

_POLL: Final = 0.25
_TARGETS: Final = {"on": "power on", "off": "power off", "reboot": "rebooting"}
_ACTIVE: Final = ("inspecting", "inspect wait")
_STATES: Final = ("uuid", "name", "provision_state", "power_state", "target_power_state", "last_error")

wait_option = click.option("--wait", is_flag=True, help="Wait until it is so.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds to wait at the most, for all together.",
)


def provision(api: Api, node: Json, target: str) -> None:
    """Ask for a provision state."""
    api.put(node_path(node["uuid"], "states", "provision"), {"target": target})


@click.command("manage")
@nodes_argument
@wait_option
@timeout_option
@with_api
def manage(api: Api, out: Output, *, idents: tuple[str, ...], wait: bool, timeout: float) -> None:
    """Check that nodes can be managed, and bring them to 'manageable'."""
    patience = Patience(api, timeout)

    def managed(node: Json) -> None:
        now = patience.until(node, lambda now: now["provision_state"] != "verifying")
        if now["provision_state"] != "manageable":
            raise Failure(now["last_error"] or f"{label(node)} is {now['provision_state']}")

    _ask(api, out, idents, "manage", done="manageable", wait=managed if wait else None)


@click.command("provide")
@nodes_argument
@with_api
def provide(api: Api, out: Output, *, idents: tuple[str, ...]) -> None:
    """Hand manageable nodes over for use: they become 'available'."""
    each(api, out, idents, lambda node: provision(api, node, "provide"), done="available")


@click.command("abort")
@nodes_argument
@wait_option
@timeout_option
@with_api
def abort(api: Api, out: Output, *, idents: tuple[str, ...], wait: bool, timeout: float) -> None:
    """Abort inspections that are under way."""
    patience = Patience(api, timeout)

    def ended(node: Json) -> None:
        patience.until(node, lambda now: now["provision_state"] not in _ACTIVE)

    _ask(api, out, idents, "abort", done="aborted", wait=ended if wait else None)


@click.command("power")
@node_argument
@click.argument("target", type=click.Choice(list(_TARGETS)), required=False)
@wait_option
@timeout_option
@with_api
def power(api: Api, out: Output, *, ident: str, target: str | None, wait: bool, timeout: float) -> None:
    """Show the power state of a node, or change it: on, off or reboot."""
    if target is None:
        from ferroscope.cli.lookup import find

        node = find(api, ident, fields=_STATES)
        shown = {name: node[name] for name in ("uuid", "name", "power_state", "target_power_state", "last_error")}
        out.show(shown, lambda screen: screen.print(node["power_state"] or "unknown"))
        return

    def act(node: Json) -> None:
        api.put(node_path(node["uuid"], "states", "power"), {"target": _TARGETS[target]})

    def powered(node: Json) -> None:
        now = patience.until(node, lambda now: now["target_power_state"] is None, shown="power_state")
        wanted = "power off" if target == "off" else "power on"
        if now["power_state"] != wanted:
            raise Failure(now["last_error"] or f"{label(node)} is still {now['power_state']}")

    patience = Patience(api, timeout)
    done = f"power {target}" if wait else "accepted"
    each(api, out, [ident], act, done=done, wait=powered if wait else None)


def _ask(
    api: Api,
    out: Output,
    idents: tuple[str, ...],
    verb: str,
    *,
    done: str,
    wait: Callable[[Json], None] | None,
) -> None:
    """Ask for a provision state of all nodes; with ``wait`` wait for all of them then."""
    each(api, out, idents, lambda node: provision(api, node, verb), done=done if wait else "accepted", wait=wait)


class Patience:
    """``seconds`` for all that is waited for together, counted from when the first wait begins."""

    def __init__(self, api: Api, seconds: float) -> None:
        self._api = api
        self._seconds = seconds
        self._deadline: float | None = None

    def until(self, node: Json, reached: Callable[[Json], bool], *, shown: str = "provision_state") -> Json:
        """Return the node's states once ``reached`` agrees to them; ``Failure`` when the time is over."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
        while not reached(now := self._api.get(node_path(node["uuid"]), fields=_STATES)):
            if time.monotonic() >= self._deadline:
                raise Failure(
                    f"{label(node)} is still {now[shown] or 'without a known power state'} after {self._seconds:g} s",
                    exit_code=Exit.TIMED_OUT,
                    advice=f"see why: ferroscope node timeline {label(node)}",
                )
            time.sleep(_POLL)
        return now
