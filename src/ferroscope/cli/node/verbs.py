"""``ferroscope node manage | provide | abort | power``: ask the service to bring nodes somewhere.

The service answers at once and does it later; ``--wait`` waits for the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

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
    help="Seconds to wait at the most.",
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

    def act(node: Json) -> None:
        provision(api, node, "manage")
        if wait:
            _until(api, node, timeout, lambda now: now["provision_state"] != "verifying")
            _must_be(api, node, "manageable")

    each(api, out, idents, act, done="manageable" if wait else "accepted")


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

    def act(node: Json) -> None:
        provision(api, node, "abort")
        if wait:
            _until(api, node, timeout, lambda now: now["provision_state"] not in _ACTIVE)

    each(api, out, idents, act, done="aborted" if wait else "accepted")


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
        if wait:
            now = _until(api, node, timeout, lambda now: now["target_power_state"] is None)
            wanted = "power off" if target == "off" else "power on"
            if now["power_state"] != wanted:
                raise Failure(now["last_error"] or f"{label(node)} is still {now['power_state']}")

    each(api, out, [ident], act, done=f"power {target}" if wait else "accepted")


def _until(api: Api, node: Json, timeout: float, reached: Callable[[Any], bool]) -> Json:
    """Return the node's states once ``reached`` agrees to them."""
    deadline = time.monotonic() + timeout
    while not reached(now := api.get(node_path(node["uuid"]), fields=_STATES)):
        if time.monotonic() >= deadline:
            raise Failure(
                f"{label(node)} is still {now['provision_state']} after {timeout:g} s",
                exit_code=Exit.TIMED_OUT,
                advice=f"see why: ferroscope node timeline {label(node)}",
            )
        time.sleep(_POLL)
    return now


def _must_be(api: Api, node: Json, state: str) -> None:
    now = api.get(node_path(node["uuid"]), fields=_STATES)
    if now["provision_state"] != state:
        raise Failure(now["last_error"] or f"{label(node)} is {now['provision_state']}")
