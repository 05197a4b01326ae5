"""The BMC driver of one process: questions and commands on their way to a machine's BMC, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.remote import calls
from tests.simulation.checks.failover import READ_BEFORE

if TYPE_CHECKING:
    from tests.simulation.cluster import Host
    from tests.simulation.kubernetes.machines import Machine
    from tests.simulation.world import World


def drivers_of(world: World, host: Host) -> dict[str, Any]:
    """Return the drivers of a process on this host, by name."""
    return {"sim": RedfishBmc(world, host), "redfish": RedfishBmc(world, host), "ipmi": ClusterBmc(world, host)}


class ClusterBmc:
    """``contracts.bmc.Bmc`` and ``ForcesOff``, as the drivers that are shipped: a command passes the fence first."""

    properties: dict[str, str] = {}

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._kernel = world.kernel
        self._host = host
        self._rng = world.kernel.rng("BMC network")
        self._timeout = world.scenario.settings.drivers.command_timeout

    def validate(self, _node: Node) -> str | None:
        return None

    def get_power(self, node: Node) -> Power:
        def look(machine: Machine) -> Power:
            on = machine.on
            if machine.bmc.unknown or (machine.bmc.changing and machine.bmc.tells):
                return Power.UNKNOWN if machine.bmc.unknown else Power.CHANGING
            if machine.bmc.stuck_off:
                return Power.OFF
            if machine.bmc.lies:
                machine.bmc.lies -= 1
                on = not on
                machine.lied_at = self._kernel.now
                machine.say("its BMC lies")
            return Power.ON if on else Power.OFF

        return self._call(node, "get power", look)  # type: ignore[no-any-return]

    def set_power(self, node: Node, power: Power) -> None:
        self._command(node, on=power is Power.ON)

    def force_off(self, node: Node) -> bool:
        self._command(node, on=False)
        return True

    def _command(self, node: Node, *, on: bool) -> None:
        calls.check_fence()
        sent_at = self._kernel.now

        def obey(machine: Machine) -> BmcError | None:
            machine.say(f"its BMC gets the command {'on' if on else 'off'}, sent at {sent_at:.1f}")
            if not on:
                meant = self._world.places.entry_of[node.uuid]
                meant.cluster.check.commands_off(meant, sent_at)
            if not on and machine.bmc.refuses:
                machine.bmc.refuses -= 1
                return BmcError("the BMC is busy", transient=True)
            if not machine.bmc.deaf:
                machine.bmc.changing += 1
                self._kernel.at(self._rng.uniform(0.1, 3.0), self._follow, machine, on, sent_at)
            return None

        if (refusal := self._call(node, "on" if on else "off", obey)) is not None:
            raise refusal

    def _follow(self, machine: Machine, on: bool, sent_at: float) -> None:
        machine.bmc.changing -= 1
        if not on and machine.on:
            machine.cluster.check.powers_off(machine, sent_at)
            machine.switched_off_by_us = True
            machine.cut_off_at.append(self._kernel.now)
            machine.crossed = max(machine.on_since, machine.lied_at) > sent_at - READ_BEFORE
        machine.power(on=on, why="by its BMC")

    def _call(self, node: Node, what: str, act: Callable[[Machine], Any]) -> Any:
        kernel, rng = self._kernel, self._rng
        machine = self._world.places.machine_at(node.driver_info)
        if machine is None:
            raise BmcError("the name of the BMC cannot be resolved", transient=True)
        task = kernel.me()
        ticket, timeout = task.ticket, self._timeout / task.owner.rate

        def arrive() -> None:
            if self._host.bmc_up and not machine.bmc.silent:
                answer = (act(machine),)
                kernel.at(0.005 + rng.random() * 0.1, kernel.resume, task, ticket, answer)

        kernel.at(0.01 + rng.random() * 0.2 + machine.bmc.slow * rng.random(), arrive)
        kernel.at(timeout, kernel.resume, task, ticket, None)
        answer = kernel.park()
        if answer is None:
            kernel.say(f"got no answer from the BMC of {machine.name} to {what}")
            raise BmcError("the BMC does not answer", transient=True)
        return answer[0]


class RedfishBmc(ClusterBmc):
    """Also ``contracts.bmc.TellsMachines``."""

    def machine(self, node: Node) -> Document:
        def look(machine: Machine) -> Document:
            return {"serial": machine.serial, "uuid": machine.reported_uuid} if machine.bmc.redfish else {}

        return self._call(node, "get machine", look)  # type: ignore[no-any-return]
