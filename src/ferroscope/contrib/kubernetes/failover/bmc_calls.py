"""The running calls to BMCs: one for each node, so that a slow BMC delays only its own node.

A question outlives the pass that asks it, and is answered in the pass that takes it. So does a command; until it has
ended, nothing else is sent to that BMC. The data of the node that was read before the question stays with it, because
its age is part of the proof: resource versions protect what a returning kubelet changes after that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final, Protocol

import msgspec
import structlog

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import Clock
from ferroscope.contrib.kubernetes.failover.placement import PodQuery
from ferroscope.contrib.kubernetes.failover.pods import PersistentVolume, Pod, VolumeAttachment
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope.remote.calls import TooLateError

_log = structlog.get_logger(__name__)

# Threads; more calls than that wait for one to end. A silent BMC occupies one until its timeout.
_MAX_THREADS: Final = 64


class MachinePower(Protocol):
    """The power of machines, by their UUID. ``BmcError``, ``TooLateError``."""

    def state(self, machine: str) -> tuple[Power, bool | None]:
        """Return the power that the BMC reports, and whether the machine boots; None if it does not report that."""

    def identity(self, machine: str) -> MachineIdentity | None:
        """Return the machine's identity as the BMC reports it; None if it cannot."""

    def addresses(self, machine: str) -> Set[str]:
        """Return the addresses to which commands for the machine go now; none if only the machine reported them."""

    def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        """Request it, as long as ``left`` returns more than 0 seconds."""


class PowerAnswer(msgspec.Struct, frozen=True):
    """``error``: why the BMC reports neither on nor off. ``asked_at``: by our clock, just before the question.

    ``identity``: the machine's identity as it reports it, None if it does not. ``addresses``: where it was asked.
    ``booting``: whether it reports that the machine boots, None if it does not report that.
    """

    power: Power
    asked_at: float
    error: str = ""
    identity: MachineIdentity | None = None
    booting: bool | None = None
    addresses: Set[str] = frozenset()


_DOUBTS: Final = {
    Power.CHANGING: "it reports that the machine's power state is changing",
    Power.UNKNOWN: "its answer has no power state that is on or off",
}


class Load(msgspec.Struct, frozen=True):
    """What is on a node; ``volumes`` by the namespace and the name of their claims.

    ``neighbors``: the pods that the affinities of its pods name, None if they are too many.
    ``error``: why that could not be read, "" if it was. Then nothing is known about the node's pods.
    """

    pods: Sequence[Pod] = ()
    attachments: Sequence[VolumeAttachment] = ()
    volumes: Mapping[tuple[str, str], PersistentVolume] = {}
    neighbors: Mapping[PodQuery, Sequence[Pod] | None] = {}
    error: str = ""

    @property
    def uids(self) -> set[str]:
        """The UIDs of the pods and attachments."""
        return {pod.uid for pod in self.pods} | {attachment.metadata.uid for attachment in self.attachments}


class Question(msgspec.Struct, frozen=True):
    """One node whose BMC is asked, and what was on it before; ``machine`` is "" if there is none to ask."""

    node: str
    machine: str
    opened_at: float
    answer: Future[PowerAnswer]
    load: Load


class _PowerCommand(msgspec.Struct, frozen=True):
    opened_at: float
    running: Future[str]


class BmcCalls:
    """For one thread; the calls run in threads of their own."""

    def __init__(self, power: MachinePower, clock: Clock) -> None:
        self._power = power
        self._clock = clock
        self._pool = ThreadPoolExecutor(max_workers=_MAX_THREADS, thread_name_prefix="bmc")
        self._questions: dict[str, Question] = {}
        self._commands: dict[str, _PowerCommand] = {}
        self._failures: dict[str, str] = {}

    def close(self) -> None:
        """Start nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, node: str, machine: str, load: Load) -> None:
        """Ask for the machine's power; "": there is no machine to ask, and the answer is there at once."""
        now = self._clock.monotonic()
        answer: Future[PowerAnswer] = Future()
        if machine:
            answer = self._pool.submit(self._ask_power, machine)
        else:
            answer.set_result(PowerAnswer(Power.UNKNOWN, now, "it was not asked"))
        self._questions[node] = Question(node, machine, now, answer, load)

    def command(self, node: str, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        """Send a power command; a failure is logged, and returned by ``failure``. Call ``busy`` before."""
        self._failures.pop(node, None)
        running = self._pool.submit(self._send_command, node, machine, on=on, left=left)
        self._commands[node] = _PowerCommand(self._clock.monotonic(), running)

    def busy(self, node: str) -> bool:
        """Whether the node has a question that was not taken, or a command that has not ended."""
        command = self._commands.get(node)
        if command is not None and command.running.done():
            del self._commands[node]
            self._failures[node] = command.running.result()
        return node in self._questions or node in self._commands

    def failure(self, node: str) -> str:
        """Return why the node's last command failed, "" if it was accepted or there was none."""
        return self._failures.get(node, "")

    def open_seconds(self, node: str) -> float:
        """Return for how many seconds the node has been busy."""
        call = self._questions.get(node) or self._commands.get(node)
        return 0.0 if call is None else self._clock.monotonic() - call.opened_at

    def has_answers(self) -> bool:
        """Whether there are answers that were not taken."""
        return any(question.answer.done() for question in self._questions.values())

    def take(self) -> list[Question]:
        """Return each answered question once."""
        questions = [question for question in self._questions.values() if question.answer.done()]
        for question in questions:
            del self._questions[question.node]
        return questions

    def wait(self, nodes: Container[str], patience: float, timeout: float) -> bool:
        """Wait until a call about one of these nodes ends; False if none is under way that is younger than this."""
        calls: dict[Future[Any], float] = {}
        for name, question in self._questions.items():
            if name in nodes:
                calls[question.answer] = question.opened_at
        for name, command in self._commands.items():
            if name in nodes and not command.running.done():
                calls[command.running] = command.opened_at
        now = self._clock.monotonic()
        young = {call: patience - (now - opened_at) for call, opened_at in calls.items() if now - opened_at < patience}
        if young:
            wait(young, timeout=min(timeout, *young.values()), return_when=FIRST_COMPLETED)
        return bool(young)

    def _ask_power(self, machine: str) -> PowerAnswer:
        asked_at = self._clock.monotonic()
        try:
            identity, addresses = self._power.identity(machine), self._power.addresses(machine)
            asked_at = self._clock.monotonic()
            power, booting = self._power.state(machine)
        except BmcError as exc:
            return PowerAnswer(Power.UNKNOWN, asked_at, str(exc))
        except Exception as exc:  # noqa: BLE001  # a driver of somebody else must not keep the other nodes waiting
            _log.exception("failover: the driver of a machine has failed", machine=machine)
            return PowerAnswer(Power.UNKNOWN, asked_at, f"its driver has failed ({type(exc).__name__}); see the log")
        return PowerAnswer(power, asked_at, _DOUBTS.get(power, ""), identity, booting, addresses)

    def _send_command(self, node: str, machine: str, *, on: bool, left: Callable[[], float]) -> str:
        try:
            self._power.set(machine, on=on, left=left)
        except (BmcError, TooLateError) as exc:
            why = str(exc) or "the lease was about to expire"
            _log.warning("failover: a power command failed; it is repeated", node=node, on=on, error=why)
            return why
        except Exception as exc:  # noqa: BLE001  # as above
            _log.exception("failover: the driver of a machine has failed", node=node, on=on)
            return f"its driver has failed ({type(exc).__name__}); see the log"
        return ""
