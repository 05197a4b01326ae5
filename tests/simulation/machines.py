"""The machines: a BMC with a power state of its own, and a ramdisk that boots, waits and calls back.

A command that was sent takes effect even if its sender has died meanwhile. What a machine does is
counted here, and nowhere in the product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from tests.simulation.scenario import INTRUDER

if TYPE_CHECKING:
    from tests.simulation.checks.claims import Claimed
    from tests.simulation.cluster import SimulatedProcess
    from tests.simulation.world import World

# IPA gives its callback up after about so many seconds of errors.
_PATIENCE = 28.0


class Machine:
    """``boots`` counts how often it was really powered on."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.uuid = f"00000000-0000-4000-8000-{number:012d}"
        self.name = f"n{number}"
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.rng = world.kernel.rng(f"machine {number}")
        self.power = Power.ON if self.rng.random() < 0.3 else Power.OFF
        self.boot_device = BootDevice.DISK
        self.boots = 0
        self.call_loss = 0.0  # probability that a BMC call is lost
        self.dumb = world.scenario.dumb  # chance that a ramdisk never calls back
        self.generation = 0
        self.secret = ""  # of its inspection, as loaded by the latest boot
        self.sent_under: Claimed | None = None  # the claim under which the last command was sent
        self.meddled = False  # by a worker whose claim was over
        self.late = False  # whether the sender of the last command had given up when it arrived

    def command(self, power: Power) -> None:
        """Take a power command; the state follows a moment later."""
        self.generation += 1
        generation = self.generation
        delay = self.rng.choice((0.0, 0.05, 1.0)) * self.rng.random()
        self.world.kernel.at(delay, self._follow, power, generation)

    def reset(self) -> None:
        """Boot anew at once, without being off in between."""
        self.power = Power.OFF
        self.generation += 1
        self._follow(Power.ON, self.generation)

    def _follow(self, power: Power, generation: int) -> None:
        if generation != self.generation or power is self.power:
            return
        self.power = power
        self.world.kernel.say(f"is now {power}", self.name)
        if power is Power.ON:
            self.boots += 1
            self.world.checks.power.powered_on(self)
            if self.boot_device is BootDevice.PXE:
                self.boot_device = BootDevice.DISK
                self.world.spawn(f"ramdisk {self.name}.{self.boots}", lambda boot=self.boots: self.ramdisk(boot))

    def body(self, boot: int) -> bytes:
        """Return what the ramdisk of this boot posts: no two boots say the same."""
        nic = {"name": "eth0", "mac_address": self.mac, "ipv4_address": f"192.0.2.{self.number}", "lldp": []}
        inventory = {
            "interfaces": [nic],
            "cpu": {"architecture": "x86_64", "count": 8},
            "memory": {"physical_mb": 4096},
            "boot": {"pxe_interface": self.mac},
            "disks": [],
            "bmc_address": f"192.0.2.{100 + self.number}",
        }
        return msgspec.json.encode({"inventory": inventory, "boot": f"{self.name}.{boot}"})

    def ramdisk(self, boot: int) -> None:
        """Boot, then post the inventory until it is taken or the patience is over."""
        world = self.world
        if world.scenario.intruders:
            secret = self._load_secret(boot)
            if secret is None:
                world.say(f"boot {boot} goes on with the next boot device", self.name)
                return
            self.secret = secret
        world.kernel.sleep(self.rng.choice((2.0, 6.0, 15.0)) * (0.2 + self.rng.random()))
        if self.rng.random() < self.dumb:
            world.say(f"the ramdisk of boot {boot} hangs", self.name)
            return
        body, since, pause = self.body(boot), world.kernel.now, 1.0
        if self.rng.random() < world.scenario.double_callbacks:
            delay = self.rng.choice((0.01, 2.0, 40.0)) * self.rng.random()
            world.spawn(f"network {self.name}.{boot}", lambda: self._repeat(body, delay))
        while self.boots == boot and self.power is Power.ON and world.kernel.now - since < _PATIENCE:
            if self._post(body) in (202, 404):
                return
            world.kernel.sleep(pause * (0.5 + self.rng.random()))
            pause = min(8.0, pause * 2)
        world.say(f"the ramdisk of boot {boot} has given up", self.name)

    def _load_secret(self, boot: int) -> str | None:
        """Load the machine's iPXE script, as the boot host's script does; return the secret, None if it gave up."""
        for _ in range(10):
            answer = self.world.http("GET", f"/v1/boot.ipxe?mac={self.mac}", b"")
            self.world.say(f"loads its boot script: {answer.status if answer else 'no answer'}", self.name)
            if answer is not None and answer.status == 200:
                return answer.body.decode().partition("set secret ")[2].strip()
            self.world.kernel.sleep(3.0)
            if self.boots != boot or self.power is not Power.ON:
                break
        return None

    def intruder(self) -> None:
        """Somebody else calls back as this machine, now and then, without the secret of its inspection."""
        world, rng = self.world, self.world.kernel.rng(f"intruder {self.number}")
        while world.kernel.now < world.scenario.active:
            world.kernel.sleep(rng.choice((0.5, 5.0, 20.0)) * rng.random())
            nic = {"name": "evil0", "mac_address": self.mac}
            body = msgspec.json.encode({"inventory": {"interfaces": [nic]}, "error": "spoofed", "at": world.kernel.now})
            query = rng.choice(("", "?secret=", "?secret=guessed"))
            answer = world.http("POST", f"/v1/continue_inspection{query}", body, source=INTRUDER)
            world.count("callbacks of intruders")
            world.say(f"an intruder calls back: {answer.status if answer else 'no answer'}", self.name)
            if answer is not None and answer.status == 202:
                world.kernel.fail("I10", f"a callback of {self.name} was accepted without the secret of its inspection")

    def _repeat(self, body: bytes, delay: float) -> None:
        """The network delivers the callback once more, perhaps much later."""
        self.world.kernel.sleep(delay)
        self.world.count("callbacks delivered twice or late")
        self._post(body)

    def _post(self, body: bytes) -> int | None:
        digest = hashlib.sha256(body).hexdigest()
        self.world.checks.answers.calls_back(self, digest)
        query = f"?secret={self.secret}" if self.secret else ""
        answer = self.world.http("POST", f"/v1/continue_inspection{query}", body)
        self.world.say(f"calls back ({digest[:6]}): {answer.status if answer else 'no answer'}", self.name)
        if answer is not None and answer.status == 202:
            self.world.checks.answers.took_callback(self, digest)
        return None if answer is None else answer.status


class SimulatedBmc:
    """``contracts.bmc.Bmc`` of one process, over its host's way to the BMCs."""

    def __init__(self, world: World, process: SimulatedProcess) -> None:
        self._world = world
        self._process = process
        self._rng = world.kernel.rng("bmc network")
        self._timeout = world.scenario.settings.drivers.command_timeout

    def validate(self, _node: Node) -> str | None:
        return None

    def get_power(self, node: Node) -> Power:
        return self._call(node, "get power", lambda machine: machine.power)  # type: ignore[no-any-return]

    def set_power(self, node: Node, power: Power) -> None:
        self._call(node, str(power), lambda machine: machine.command(power))

    def reboot(self, node: Node) -> None:
        self._call(node, "reboot", Machine.reset)

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        self._call(node, f"boot from {device}", lambda machine: setattr(machine, "boot_device", device))

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        return self._call(node, "get boot device", lambda machine: (machine.boot_device, False))  # type: ignore[no-any-return]

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        def clear(machine: Machine) -> bool:
            was_set = machine.boot_device is device
            machine.boot_device = BootDevice.DISK
            return was_set

        return self._call(node, "clear boot device", clear)  # type: ignore[no-any-return]

    def _call(self, node: Node, what: str, act: Callable[[Machine], Any]) -> Any:
        """Send one command over the network and return the answer; ``BmcError`` where none comes in time."""
        world, kernel, rng = self._world, self._world.kernel, self._rng
        machine = world.machines[node.uuid]
        if machine.number < world.scenario.poisoned and what in (Power.ON, Power.OFF, "reboot"):
            kernel.say(f"{machine.name} kills who commands it")
            world.crash(self._process, supervised=rng.random() < world.scenario.supervised, after=0.5 + rng.random())
            kernel.park()
        task, ticket = kernel.me(), kernel.me().ticket
        under = world.checks.claims.by_task.get(task)
        timeout = self._timeout / task.owner.rate
        sent_at, there = kernel.now, 0.005 + rng.random() * 0.05
        if rng.random() < world.scenario.slow_bmc:
            there = rng.random() * self._timeout * world.scenario.slowest_answer
        request_lost = not self._process.host.bmc_up or rng.random() < machine.call_loss
        reply_lost = rng.random() < machine.call_loss

        def take_effect() -> None:
            world.checks.power.commanded(task, machine, what, under)
            if not what.startswith("get"):
                machine.late = kernel.now >= sent_at + timeout
            value = act(machine)
            if not what.startswith("get"):
                kernel.say(f"takes the command {what} of {task}", machine.name)
            if not reply_lost:
                kernel.at(0.005 + rng.random() * 0.05, kernel.resume, task, ticket, (value,))

        if not request_lost:
            kernel.at(there, take_effect)
        kernel.at(timeout, kernel.resume, task, ticket, None)
        answer = kernel.park()
        if answer is None:
            world.checks.power.no_answer(task)
            world.count("BMC calls without an answer")
            kernel.say(f"got no answer from the BMC of {machine.name} to {what}")
            raise BmcError(f"the BMC of {machine.name} does not answer", transient=True)
        return answer[0]
