"""The BMC driver for the simulated fleet: one JSON object per line, over TCP.

As ``contracts.bmc`` requires, each call ends within its time limit and raises ``BmcError`` or ``TooLateError``. All
commands are idempotent, so a command on a stale connection is repeated once on a new one. The server is
``ferroscope_sim``; the two share the protocol, but no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ferroscope.bmc.drivers import DriverOptions, check_place, problem
from ferroscope.bmc.sim.pool import PROPERTIES, BrokenError, Endpoint, GarbledError, Pool, SilentError, locate
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node

# The commands of the protocol, for messages.
_DOES: Final = {
    "get_power": "reading the power state of",
    "set_power": "setting the power state of",
    "get_boot_device": "reading the boot device of",
    "set_boot_device": "setting the boot device of",
    "get_inventory": "reading the inventory of",
    "get_health": "reading the health of",
}


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line to the simulator."""

    op: str
    node: str
    power: str | None = None
    device: str | None = None
    persistent: bool | None = None


class Answer(msgspec.Struct, frozen=True):
    """A line from the simulator; the fields from ``power`` on are there if they were requested."""

    ok: bool
    error: str = "no reason given"
    transient: bool = False
    power: Power | None = None
    device: BootDevice | None = None
    persistent: bool | None = None
    inventory: Document | None = None
    health: Document | None = None


class SimBmc:
    """Thread-safe. ``idle``: connections kept per address, ``most`` in all."""

    properties: Mapping[str, str] = PROPERTIES
    simulated = True

    def __init__(self, options: DriverOptions | None = None, *, idle: int = 8, most: int = 128) -> None:
        self._options = options or DriverOptions()
        self._pool = Pool(idle=idle, most=most)
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Answer)

    def validate(self, node: Node) -> str | None:
        """Return what is wrong with ``driver_info``, or None. Does not contact the simulator."""
        return problem(self._locate, node.driver_info)

    def get_power(self, node: Node) -> Power:
        """Return the actual power state."""
        power = self._call(node, "get_power").power
        if power is None:
            raise BmcError(f"the simulated BMC of {_name(node)} did not report a power state", transient=False)
        return power

    def set_power(self, node: Node, power: Power) -> None:
        """Set the power state; the machine may follow later."""
        self._call(node, "set_power", power=power)

    def reboot(self, node: Node) -> None:
        """Reset the machine."""
        self._call(node, "set_power", power="rebooting")

    def soft_power_off(self, node: Node) -> None:
        """Have the machine shut down; its operating system may take its time."""
        self._call(node, "set_power", power="soft power off")

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` once or always."""
        self._call(node, "set_boot_device", device=device, persistent=persistent)

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return device and persistence."""
        answer = self._call(node, "get_boot_device")
        return answer.device, answer.persistent

    def inventory(self, node: Node) -> Document:
        """Return the hardware as the simulated BMC knows it."""
        return self._document(node, "get_inventory", self._call(node, "get_inventory").inventory)

    def health(self, node: Node) -> Document:
        """Return firmware and health."""
        return self._document(node, "get_health", self._call(node, "get_health").health)

    def _document(self, node: Node, op: str, found: Document | None) -> Document:
        if found is None:
            raise BmcError(f"{_DOES[op]} {_name(node)} failed: the simulator reported none", transient=False)
        return found

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _locate(self, driver_info: Document) -> tuple[Endpoint, str]:
        endpoint, name = locate(driver_info)
        check_place(endpoint.host, self._options.limits)
        return endpoint, name

    def _call(
        self,
        node: Node,
        op: str,
        *,
        power: str | None = None,
        device: str | None = None,
        persistent: bool | None = None,
    ) -> Answer:
        endpoint, name = self._locate(node.driver_info)
        line = self._encoder.encode(Command(op, name, power, device, persistent)) + b"\n"
        try:
            answer = self._pool.exchange(endpoint, line, self._decoder.decode, timeout=self._options.command_timeout)
        except (SilentError, BrokenError) as error:
            raise BmcError(f"{_DOES[op]} {name} failed (simulator {endpoint.text}): {error}", transient=True) from error
        except (GarbledError, msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"{_DOES[op]} {name} failed: {endpoint.text} does not speak the simulator's protocol: {error}"
            raise BmcError(message, transient=False) from error
        if not answer.ok:
            raise BmcError(f"{_DOES[op]} {name} failed: {answer.error}", transient=answer.transient)
        return answer


def _name(node: Node) -> str:
    return node.name or node.uuid
