"""``ferroscope node manage | provide | abort | power``: commands that change the state of nodes.

The service accepts them immediately and carries them out asynchronously; ``--wait`` waits until they are done.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, Final

import click
import msgspec

from ferroscope_client.cli import newest_step
from ferroscope_client.cli.lookup import label, list_obstacles
from ferroscope_client.cli.output import Output, table, with_api
from ferroscope_client.cli.screen import Waiting, progress
from ferroscope_client.cli.selection import NodeSelection, Selection, confirm, resolve, selectors
from ferroscope_client.client import Client, Json, WaitTimeoutError, node_path
from ferroscope_client.core import advice
from ferroscope_client.core.states import RESTING_VERBS, UNDER_WAY, Provision
from ferroscope_client.errors import Exit, Failure, worst

if TYPE_CHECKING:
    from rich.console import Console

# An action on many nodes: it is applied to all of them, and all failures are reported at the end.


def each(
    out: Output,
    chosen: Selection,
    act: Callable[[Json], object],
    *,
    done: str | Callable[[Json], str],
    wait: Callable[[Json, Waiting], object] | None = None,
) -> list[Json]:
    """Apply ``act`` to every node, show the results, and return the nodes for which it succeeded.

    ``done``: the result of a successful node. ``wait`` waits for completion, if ``act`` only requests; it starts after
    all requests, and says what it waits for. For many nodes, only failed ones are shown, with the number of the others.
    If any node failed, exit with the code of the failures if all are the same, else 1.
    """
    nodes: dict[str, Json] = {}
    failures = chosen.failures

    def attempt(ident: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Failure as exc:
            failures[ident] = exc

    def ask(ident: str, node: Json) -> None:
        act(node)
        nodes[ident] = node

    with progress("Requesting", len(chosen.found), shown=len(chosen.found) > 1) as advance:
        for ident, chosen_node in chosen.found.items():
            if not isinstance(chosen_node, Failure):
                attempt(ident, partial(ask, ident, chosen_node))
            advance(1)
    if wait is not None:
        with Waiting(len(nodes)) as shown:
            for ident, node in nodes.items():
                attempt(ident, partial(wait, node, shown))
                shown.advance()
    results = [_result(ident, nodes.get(ident), failures.get(ident), done) for ident in chosen.found]
    quiet = len(results) > _MAX_SHOWN
    rows = [(row["node"], row["result"], row["error"] or "") for row in results if row["error"] or not quiet]

    def draw(screen: Console) -> None:
        if rows:
            screen.print(table(("NODE", "RESULT", "ERROR"), rows))
        if quiet:
            counted = Counter(row["result"] for row in results)
            screen.print(", ".join(f"{count:,} {result}" for result, count in counted.items()))

    if results or out.for_programs:
        out.show(results, draw)
    else:
        out.say("nothing to do")
    if failures:
        raise click.exceptions.Exit(worst(list(failures.values())))
    return list(nodes.values())


def _result(ident: str, node: Json | None, failure: Failure | None, done: str | Callable[[Json], str]) -> Json:
    if failure is not None:
        return {"node": ident, "uuid": None, "result": "failed", "error": failure.message}
    assert node is not None  # noqa: S101  # it did not fail
    return {"node": label(node), "uuid": node["uuid"], "result": done(node) if callable(done) else done, "error": None}


# Up to this many nodes, each has a row, whether it failed or not.
_MAX_SHOWN: Final = 20
_TARGETS: Final = {"on": "power on", "off": "power off", "reboot": "rebooting"}
_STATES: Final = ("uuid", "name", "provision_state", "power_state", "target_power_state", "last_error")

wait_option = click.option("--wait", is_flag=True, help="Wait for completion.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Maximum seconds to wait, in total.",
)


def provision(api: Client, node: Json, target: str) -> None:
    """Request a provision state."""
    api.put(node_path(node["uuid"], "states", "provision"), {"target": target})


@click.command("manage")
@selectors
@wait_option
@timeout_option
@with_api
def manage(api: Client, out: Output, *, wanted: NodeSelection, wait: bool, timeout: float) -> None:
    """Verify the BMC credentials of nodes; nodes become 'manageable'."""
    patience = Patience(api, timeout)

    def await_managed(node: Json, shown: Waiting) -> None:
        now = patience.until(node, lambda now: now["provision_state"] != Provision.VERIFYING, waiting=shown)
        if now["provision_state"] != Provision.MANAGEABLE:
            raise Failure(now["last_error"] or f"{label(node)} is {now['provision_state']}")

    chosen = _choose(api, out, wanted, "manage", RESTING_VERBS["manage"])
    _ask(api, out, chosen, "manage", done="manageable", wait=await_managed if wait else None)


@click.command("provide")
@selectors
@with_api
def provide(api: Client, out: Output, *, wanted: NodeSelection) -> None:
    """Make manageable nodes 'available' for use."""
    chosen = _choose(api, out, wanted, "provide", RESTING_VERBS["provide"])
    each(out, chosen, lambda node: provision(api, node, "provide"), done="available")


@click.command("abort")
@selectors
@wait_option
@timeout_option
@with_api
def abort(api: Client, out: Output, *, wanted: NodeSelection, wait: bool, timeout: float) -> None:
    """Abort inspections that are in progress."""
    patience = Patience(api, timeout)

    def await_end(node: Json, shown: Waiting) -> None:
        patience.until(node, lambda now: now["provision_state"] not in UNDER_WAY, waiting=shown)

    chosen = resolve(api, wanted, states=UNDER_WAY, inbox=True)
    confirm(out, wanted, chosen, does="abort the inspection of", asks=True)
    _ask(api, out, chosen, "abort", done="aborted", wait=await_end if wait else None)


@click.command("power", epilog="--all and patterns skip nodes in maintenance and in use.")
@selectors
@wait_option
@timeout_option
@with_api
def power(api: Client, out: Output, *, wanted: NodeSelection, wait: bool, timeout: float) -> None:
    """Show the power states of nodes, or change them: append on, off or reboot to the nodes."""
    target = None
    if wanted.idents and wanted.idents[-1] in _TARGETS:
        target = wanted.idents[-1]
        wanted = msgspec.structs.replace(wanted, idents=wanted.idents[:-1])
    if target is None:
        _show_power(api, out, wanted)
        return

    def act(node: Json) -> None:
        api.put(node_path(node["uuid"], "states", "power"), {"target": _TARGETS[target]})

    def await_power(node: Json, shown: Waiting) -> None:
        now = patience.until(node, lambda now: now["target_power_state"] is None, shown="power_state", waiting=shown)
        reached = "power off" if target == "off" else "power on"
        if now["power_state"] != reached:
            state = now["power_state"] or "in an unknown power state"
            raise Failure(now["last_error"] or f"{label(node)} is still {state}")

    chosen = resolve(api, wanted, spares=True)
    confirm(out, wanted, chosen, does="reboot" if target == "reboot" else f"power {target}", asks=True)
    patience = Patience(api, timeout)
    each(out, chosen, act, done=f"power {target}" if wait else "accepted", wait=await_power if wait else None)


def _show_power(api: Client, out: Output, wanted: NodeSelection) -> None:
    chosen = resolve(api, wanted)
    for failure in chosen.failures.values():
        raise failure
    shown = []
    for chosen_node in chosen.nodes:
        node = api.get(node_path(chosen_node["uuid"]), fields=_STATES)
        shown.append({name: node[name] for name in _STATES if name != "provision_state"})
    if len(shown) == 1 and not chosen.bulk:
        out.show(shown[0], lambda screen: screen.print(shown[0]["power_state"] or "unknown"))
        return
    rows = [
        (label(power), power["power_state"] or "unknown", power["target_power_state"], power["last_error"] or "")
        for power in shown
    ]
    out.show(shown, lambda screen: screen.print(table(("NODE", "POWER", "TARGET", "ERROR"), rows)))


def _choose(api: Client, out: Output, wanted: NodeSelection, verb: str, states: Container[str]) -> Selection:
    chosen = resolve(api, wanted, states=states)
    confirm(out, wanted, chosen, does=verb, asks=False)
    return chosen


def _ask(
    api: Client,
    out: Output,
    chosen: Selection,
    verb: str,
    *,
    done: str,
    wait: Callable[[Json, Waiting], None] | None,
) -> None:
    """Request a provision state of all nodes; then, with ``wait``, wait for all of them."""
    each(out, chosen, lambda node: provision(api, node, verb), done=done if wait else "accepted", wait=wait)


class Patience:
    """A timeout of ``seconds`` for all waits together, counted from the start of the first one."""

    def __init__(self, api: Client, seconds: float) -> None:
        self._api = api
        self._seconds = seconds
        self._deadline: float | None = None

    def until(
        self, node: Json, reached: Callable[[Json], bool], *, waiting: Waiting, shown: str = "provision_state"
    ) -> Json:
        """Return the node's states as soon as ``reached`` is true for them; ``Failure`` on timeout."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
        step, look_at = "", time.monotonic() + newest_step.POLL_SECONDS

        def say(now: Json, seconds_left: float) -> None:
            nonlocal step, look_at
            if time.monotonic() >= look_at:
                step = newest_step.newest_message(self._api, node["uuid"])
                look_at = time.monotonic() + newest_step.POLL_SECONDS
            waiting.say(_describe_state(node, now[shown], step), seconds_left)

        try:
            return self._api.wait(node_path(node["uuid"]), reached, until=self._deadline, waiting=say, fields=_STATES)
        except WaitTimeoutError as exc:
            raise self._timed_out(node, exc.newest, shown) from None

    def _timed_out(self, node: Json, now: Json, shown: str) -> Failure:
        (obstacle,) = list_obstacles(self._api, [now])
        state = _describe_state(node, now[shown], newest_step.newest_message(self._api, node["uuid"]))
        why = "" if obstacle is None else f". {advice.hint(now, obstacle=obstacle)}"
        return Failure(
            f"{state}, after {self._seconds:g} s{why}",
            exit_code=Exit.TIMED_OUT,
            advice=f"see its timeline: ferroscope node timeline {label(node)}",
        )


def _describe_state(node: Json, state: str | None, step: str) -> str:
    return f"{label(node)} is still {state or 'in an unknown state'}{f' ({step})' if step else ''}"
