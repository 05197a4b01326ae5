"""The BMC driver for the simulated fleet: one JSON object per line, over TCP.

As ``contracts.bmc`` requires, each call ends within its time limit and raises ``BmcError`` or ``TooLateError``. All
commands are idempotent, so a command on a stale connection is repeated once on a new one. The server is
``ferroscope_sim``; the two share the protocol, but no code.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from ferroscope.bmc import DriverOptions, wrong
from ferroscope.contracts.bmc import BootDevice, Power, Switch, problem
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.remote import command_fence
from ferroscope.remote.addresses import check_bmc
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import Reason

ADDRESS_KEY: Final = "sim_address"
NODE_KEY: Final = "sim_node"
PROPERTIES: Final = {
    ADDRESS_KEY: "The simulator's address as IP:PORT, such as 127.0.0.1:7623. Required.",
    NODE_KEY: "The machine's name in the simulator. Required.",
}
_MAX_NAME: Final = 255


class Endpoint(msgspec.Struct, frozen=True):
    """An IP address and a TCP port, and the original text for messages."""

    host: str
    port: int
    text: str


def locate(driver_info: Document) -> tuple[Endpoint, str]:
    """Return the simulator's endpoint and the machine's name there; a permanent ``BmcError`` if one is invalid.

    Only IP addresses and ``localhost`` are accepted, because resolving a host name has no time limit.
    """
    name = driver_info.get(NODE_KEY)
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise wrong(f"{NODE_KEY} is missing in driver_info; set it to the machine's name in the simulator")
    address = driver_info.get(ADDRESS_KEY)
    endpoint = _parse(address) if isinstance(address, str) else None
    if endpoint is None:
        raise wrong(f"{ADDRESS_KEY} is missing or invalid in driver_info; set it to the simulator's IP:PORT")
    return endpoint, name


@lru_cache(maxsize=16384)
def _parse(text: str) -> Endpoint | None:
    host, _, digits = text.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536):
        return None
    host = "127.0.0.1" if host == "localhost" else host
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return Endpoint(host=host, port=int(digits), text=text)


_MAX_LINE_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 16 * 1024

T = TypeVar("T")


class SimSilentError(Exception):
    """No complete answer in time."""


class BrokenError(Exception):
    """The connection failed. ``stale``: before the first byte of the answer."""

    def __init__(self, message: str, *, stale: bool) -> None:
        self.stale = stale
        super().__init__(message)


class SimConnection:
    """One TCP connection, used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, deadline: float) -> None:
        try:
            self._socket = socket.create_connection((endpoint.host, endpoint.port), _seconds_left(deadline))
        except TimeoutError:
            raise SimSilentError("connecting timed out") from None
        except OSError as error:
            raise BrokenError(f"cannot connect: {error.strerror or error}", stale=False) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, line: bytes, deadline: float) -> bytes:
        """Send ``line`` and return the answer, up to an end of line; its content is not checked."""
        received = False
        try:
            self._socket.settimeout(_seconds_left(deadline))
            command_fence.guard(self._socket)
            self._socket.sendall(line)
            answer = self._socket.recv(_CHUNK_BYTES)
            while not answer.endswith(b"\n"):
                received = bool(answer)
                answer += self._more(answer, deadline)
        except TimeoutError:
            raise SimSilentError("timed out waiting for an answer") from None
        except OSError as error:
            raise BrokenError(f"connection lost: {error.strerror or error}", stale=not received) from error
        return answer

    def _more(self, answer: bytes, deadline: float) -> bytes:
        if not answer:
            raise BrokenError("connection closed without an answer", stale=True)
        if len(answer) > _MAX_LINE_BYTES:
            raise json_safety.JsonTooLargeError(f"the answer is longer than {_MAX_LINE_BYTES} bytes")
        self._socket.settimeout(_seconds_left(deadline))
        chunk = self._socket.recv(_CHUNK_BYTES)
        if not chunk:
            raise BrokenError("connection closed during the answer", stale=False)
        return chunk

    def close(self) -> None:
        self._socket.close()


class Pool:
    """Idle connections, newest first; at most ``idle`` per endpoint, ``most`` in all.

    Above that, the connections of the least recently used endpoint are closed: a fleet has as many endpoints as
    machines, but a process has a limited number of file descriptors.
    """

    def __init__(self, *, idle: int, most: int = 128) -> None:
        self._idle = idle
        self._most = most
        self._kept = 0
        self._lock = threading.Lock()
        self._waiting: dict[Endpoint, list[SimConnection]] = {}

    def exchange(self, endpoint: Endpoint, line: bytes, parse: Callable[[bytes], T], *, timeout: float) -> T:
        """Return the answer as parsed by ``parse``, within ``timeout`` seconds, reconnection included.

        ``line`` must be idempotent: if an idle connection turns out to be closed by the server, it is sent again on a
        new one. Raises ``SimSilentError``, ``BrokenError``, ``JsonError``, ``TooLateError``, or what ``parse`` raises.
        """
        deadline = time.monotonic() + timeout
        connection = self._take(endpoint)
        if connection is not None:
            try:
                return self._ask(endpoint, connection, line, parse, deadline)
            except BrokenError as error:
                if not error.stale:
                    raise
                self._forget(endpoint)
        return self._ask(endpoint, SimConnection(endpoint, deadline), line, parse, deadline)

    def close(self) -> None:
        """Close idle connections; connections in use are closed after use."""
        self._idle = 0
        with self._lock:
            endpoints = list(self._waiting)
        for endpoint in endpoints:
            self._forget(endpoint)

    def _ask(
        self, endpoint: Endpoint, connection: SimConnection, line: bytes, parse: Callable[[bytes], T], deadline: float
    ) -> T:
        kept = False
        try:
            answer = parse(connection.ask(line, deadline))
            kept = self._keep(endpoint, connection)
        finally:
            if not kept:
                connection.close()
        return answer

    def _take(self, endpoint: Endpoint) -> SimConnection | None:
        with self._lock:
            connections = self._waiting.pop(endpoint, None)
            if connections is None:
                return None
            connection = connections.pop()
            self._kept -= 1
            if connections:
                self._waiting[endpoint] = connections
            return connection

    def _keep(self, endpoint: Endpoint, connection: SimConnection) -> bool:
        surplus: list[SimConnection] = []
        with self._lock:
            connections = self._waiting.pop(endpoint, [])
            kept = len(connections) < self._idle
            if kept:
                connections.append(connection)
                self._kept += 1
            if connections:
                self._waiting[endpoint] = connections
            if self._kept > self._most:
                surplus = self._waiting.pop(next(iter(self._waiting)))
                self._kept -= len(surplus)
        for surplus_connection in surplus:
            surplus_connection.close()
        return kept

    def _forget(self, endpoint: Endpoint) -> None:
        """Close the idle connections to ``endpoint``: the server was restarted, so all of them are dead."""
        with self._lock:
            connections = self._waiting.pop(endpoint, [])
            self._kept -= len(connections)
        for connection in connections:
            connection.close()


def _seconds_left(deadline: float) -> float:
    """Return the seconds until ``deadline``, at least a millisecond: zero would mean non-blocking."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return max(left, 0.001)


class SimCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line to the simulator."""

    op: str
    node: str
    power: str | None = None
    device: str | None = None
    persistent: bool | None = None


class SimAnswer(msgspec.Struct, frozen=True):
    """A line from the simulator; the fields from ``power`` on are there if they were requested."""

    ok: bool
    error: str = "no reason given"
    transient: bool = False
    power: Any = None
    device: BootDevice | None = None
    persistent: bool | None = None
    cleared: bool = False
    inventory: Document | None = None
    health: Document | None = None


def _decode(line: bytes) -> SimAnswer:
    return json_safety.decode(line, SimAnswer)


class SimBmc:
    """Thread-safe. ``idle``: connections kept per address, ``most`` in all."""

    properties: Mapping[str, str] = PROPERTIES
    simulated = True

    def __init__(self, options: DriverOptions | None = None, *, idle: int = 8, most: int = 256) -> None:
        self._options = options or DriverOptions()
        limits = self._options.limits
        # The simulated fleet usually runs on this host, and its protocol is of no use against anything else there.
        self._limits = msgspec.structs.replace(limits, networks=limits.networks.with_loopback())
        self._pool = Pool(idle=idle, most=most)
        self._encoder = msgspec.json.Encoder()

    def validate(self, node: Node) -> str | None:
        return problem(self._locate, node.driver_info)

    def get_power(self, node: Node) -> Power:
        return Power.of(self._call(node, "get_power").power)

    def set_power(self, node: Node, power: Switch) -> None:
        self._call(node, "set_power", power=power)

    def reboot(self, node: Node) -> None:
        self._call(node, "set_power", power="rebooting")

    def soft_power_off(self, node: Node) -> None:
        self._call(node, "set_power", power="soft power off")

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        self._call(node, "set_boot_device", device=device, persistent=persistent)

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        answer = self._call(node, "get_boot_device")
        return answer.device, answer.persistent

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        return self._call(node, "clear_boot_device", device=device).cleared

    def inventory(self, node: Node) -> Document:
        return self._document(node, "get_inventory", self._call(node, "get_inventory").inventory)

    def health(self, node: Node) -> Document:
        return self._document(node, "get_health", self._call(node, "get_health").health)

    def _document(self, node: Node, op: str, document: Document | None) -> Document:
        if document is None:
            raise BmcError(f"{op} of {node.name or node.uuid} failed: the simulator reported none", transient=False)
        return document

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _locate(self, driver_info: Document) -> tuple[Endpoint, str]:
        endpoint, name = locate(driver_info)
        check_bmc(endpoint.host, self._limits.networks)
        return endpoint, name

    def _call(
        self,
        node: Node,
        op: str,
        *,
        power: str | None = None,
        device: str | None = None,
        persistent: bool | None = None,
    ) -> SimAnswer:
        endpoint, name = self._locate(node.driver_info)
        action = f"{op.replace('_', ' ')} of {name}"
        line = self._encoder.encode(SimCommand(op, name, power, device, persistent)) + b"\n"
        try:
            answer = self._pool.exchange(endpoint, line, _decode, timeout=self._options.command_timeout)
        except (SimSilentError, BrokenError) as error:
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            reason = Reason.BMC_CONNECTION_REFUSED if refused else Reason.BMC_UNREACHABLE
            message = f"{action} failed (simulator {endpoint.text}): {error}"
            raise BmcError(message, transient=True, reason=reason) from error
        except json_safety.JsonError as error:
            message = f"{action} failed: {endpoint.text} does not speak the simulator's protocol: {error}"
            raise BmcError(message, transient=False) from error
        if not answer.ok:
            raise BmcError(f"{action} failed: {answer.error}", transient=answer.transient)
        return answer
