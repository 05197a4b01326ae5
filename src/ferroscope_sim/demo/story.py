"""The steps of the demo, with their output; an unexpected result ends it with a ``Failure``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ferroscope.core.boot import CALLBACK_PATH
from ferroscope_client.cli.node import columns, timeline
from ferroscope_client.cli.output import table
from ferroscope_client.cli.text import parse
from ferroscope_client.cli.watch import FINISHED, Watch, WatchedNode
from ferroscope_client.cli.watch_display import Display, display, follow
from ferroscope_client.client import Client, Json, node_path
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure
from ferroscope_sim.demo.stage import MEMBER_TTL_SECONDS, DemoStage, HeldRequest, Killer, Killing, Player
from ferroscope_sim.enroll import BareMetalError, enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import FleetThread

if TYPE_CHECKING:
    from rich.console import Console

_BASE_SECONDS: Final = 30.0
_SECONDS_PER_NODE: Final = 0.5


class Redelivery(msgspec.Struct, frozen=True):
    """A request of the dead worker, and the process to which it was redelivered, ``after`` seconds after the kill."""

    held: HeldRequest
    by: str
    after: float
    state: str


class Story:
    """One run of the demo on ``stage``, with output to ``screen``; an unexpected result raises ``Failure``."""

    def __init__(self, stage: DemoStage, screen: Console, fleet: FleetSettings) -> None:
        self._stage = stage
        self._screen = screen
        self._settings = msgspec.structs.replace(fleet, callback_url=f"{stage.url}{CALLBACK_PATH}")
        self._api = Client(stage.url)
        self._began = time.monotonic()
        self._killing: Killing | None = None

    def play(self, stay: Callable[[], None] | None) -> None:
        """Run the demo; ``stay`` is called at the end, while everything is still running."""
        workers = self._start_service()
        with FleetThread(self._settings) as fleet:
            targets = self._enroll(fleet)
            watch = self._inspect(targets, workers)
            killing = self._check(watch)
            self._show_redeliveries(killing)
            self._check_boots(fleet, len(targets))
            self._show_one(killing.held[0].uuid)
            if stay is not None:
                stay()

    def _start_service(self) -> tuple[Player, ...]:
        self._head("The service: SQLite, one api process, two worker processes")
        self._stage.run("db", "upgrade")
        self._say(f"$ cd {self._stage.directory}")
        self._say(f"$ ferroscope db upgrade -c {self._stage.configuration.name}")
        self._stage.start("api", "api")
        workers = tuple(self._stage.start(f"worker-{number}", "worker") for number in (1, 2))
        for player in self._stage.players:
            role, file = player.name.partition("-")[0], self._stage.configuration.name
            self._say(f"$ ferroscope {role} -c {file}   # {player.name}, pid {player.pid}")
        self._stage.until(self._answers, "the start of the api")
        self._say(f"API: {self._stage.url}")
        return workers

    def _answers(self) -> bool:
        try:
            self._api.get("/v1/")
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE:
                raise
            return False
        return True

    def _enroll(self, fleet: FleetThread) -> list[WatchedNode]:
        count = self._settings.nodes
        self._head(f"The fleet: {many(count, 'simulated machine')}, each with a BMC, NICs, disks and a ramdisk")
        try:
            enrolment = enroll(roster(self._settings), api_url=self._stage.url, sim_address=fleet.bmcs)
        except BareMetalError as exc:
            raise Failure(f"cannot enroll the machines: {exc}") from exc
        if enrolment.failed:
            name, why = next(iter(enrolment.failed.items()))
            raise Failure(f"{many(len(enrolment.failed), 'machine')} could not be enrolled, for example {name}: {why}")
        self._say(f"{many(len(enrolment.created), 'node')} enrolled, their BMCs verified")
        nodes = self._api.pages("/v1/nodes", "nodes", fields=("uuid", "name"), sort_key="name")
        return [WatchedNode(node["uuid"], node["name"]) for node in nodes]

    def _inspect(self, targets: list[WatchedNode], workers: tuple[Player, ...]) -> Watch:
        self._head(f"The inspections: {many(len(targets), 'machine')} at once, and a worker is killed")
        watch = Watch(self._api, targets)
        timeout = _BASE_SECONDS + _SECONDS_PER_NODE * len(targets)
        with Killer(workers, self._stage.database, len(targets)) as killer, display() as screen:
            follow(watch, screen, timeout=timeout, also=lambda: self._report_killing(watch, killer, screen))
        return watch

    def _report_killing(self, watch: Watch, killer: Killer, screen: Display) -> None:
        self._stage.check()
        if self._killing is not None or killer.killing is None:
            return
        self._killing = killing = killer.killing
        screen.say(
            f"SIGKILL to {killing.worker} (pid {killing.pid}) with {killing.done} of {watch.total} done. "
            f"It held {many(len(killing.held), 'request')}:",
            style="bold yellow",
        )
        for request in killing.held:
            screen.say(f"    {request.node}: {request.event}", style="yellow")
        screen.say(
            f"It is considered dead after {MEMBER_TTL_SECONDS:g} s without a heartbeat (default: 6 s).", style="yellow"
        )

    def _check(self, watch: Watch) -> Killing:
        faulty = [end for end in watch.ended if end.result != FINISHED]
        if faulty:
            raise Failure(
                f"{len(faulty)} of {watch.total} did not finish, for example {faulty[0].node}: {faulty[0].error}"
            )
        if self._killing is None:
            raise Failure("no worker held a request when one was to be killed; run the demo again")
        self._say(f"All {watch.total} finished.", style="bold green")
        return self._killing

    def _show_redeliveries(self, killing: Killing) -> None:
        self._head(f"Requests of {killing.worker}, and the worker that took over")
        redeliveries = [self._redelivery(request, killing) for request in killing.held]
        rows = [
            (redelivery.held.node, redelivery.held.event, redelivery.by, f"{redelivery.after:.1f} s", redelivery.state)
            for redelivery in redeliveries
        ]
        titles = ("NODE", "REQUEST", "DELIVERED AGAIN TO", "AFTER THE KILL", "INSPECTION")
        self._screen.print(table(titles, rows))

    def _check_boots(self, fleet: FleetThread, machines: int) -> None:
        boots = fleet.fleet.totals.pxe_boots
        if boots != machines:
            raise Failure(f"machines booted: {machines}, boots: {boots}; one was expected for each")
        self._say(f"No machine was booted twice: {many(boots, 'boot')} for {many(machines, 'inspection')}.")

    def _redelivery(self, request: HeldRequest, killing: Killing) -> Redelivery:
        newest = self._api.get(node_path(request.uuid, "timeline"), limit=1)["inspections"][0]
        for step in newest["entries"]:
            if step["step"] == "delivered again" and _seconds(step) > killing.at:
                return Redelivery(request, step["process"], _seconds(step) - killing.at, newest["state"])
        raise Failure(f"the timeline of {request.node} shows no redelivery of its {request.event} request")

    def _show_one(self, uuid: str) -> None:
        node = self._api.get(node_path(uuid), fields=("name",))["name"]
        self._head(f"The inventory of {node} (ferroscope node inventory {node})")
        columns.draw(self._screen, self._api.get(node_path(uuid, "inventory"))["inventory"])
        self._head(f"Its timeline (ferroscope node timeline {node})")
        timeline.draw(self._screen, timeline.fetch(self._api, uuid, newest_only=True))

    def _head(self, text: str) -> None:
        self._screen.print(f"\n[{time.monotonic() - self._began:4.1f} s] {text}", style="bold cyan")

    def _say(self, text: str, style: str = "") -> None:
        self._screen.print(text, style=style)


def _seconds(step: Json) -> float:
    at = parse(step["at"])
    return at.timestamp() if at else 0.0
