"""The reboot throttle: one power-on in a quantum, whoever dies in between."""

from __future__ import annotations

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.worker.start import LEASE
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import NODE, Service, settings

QUANTUM = 10.0


def throttled() -> Service:
    base = settings()
    return Service(msgspec.structs.replace(base, worker=msgspec.structs.replace(base.worker, reboot_throttle=QUANTUM)))


def test_a_power_on_comes_a_quantum_after_its_turn_began() -> None:
    service = throttled()
    service.start()
    began = service.clock.now
    at: list[float] = []
    set_power = service.machine.set_power

    def noting(node: object, power: Power) -> None:
        at.append(service.clock.now)
        set_power(node, power)  # type: ignore[arg-type]

    service.machine.set_power = noting  # type: ignore[method-assign]
    service.work()
    assert service.node.state is State.WAITING
    assert at[0] >= began + QUANTUM


def test_the_lease_is_free_after_the_power_on() -> None:
    service = throttled()
    service.boot()
    (lease,) = service.store.read(lambda tx: tx.leases.list(LEASE))
    assert lease.holder is None


def test_while_somebody_else_powers_on_the_request_waits_without_using_up_its_attempts() -> None:
    service = throttled()
    lease = service.store.write(lambda tx: tx.leases.acquire(LEASE, "other", 1e6))
    service.start()
    for _ in range(5):
        service.worker.step()
        service.clock.now += QUANTUM
    assert service.machine.commands.count("power on") == 0
    assert [request.attempt for request in service.pending] == [0]
    service.store.write(lambda tx: tx.leases.release(lease))
    service.work()
    assert service.node.state is State.WAITING


def test_a_sleep_that_is_interrupted_powers_nothing_on_and_gives_the_request_back() -> None:
    service = throttled()
    service.start()
    claim = service.claim()
    assert claim is not None
    service.stop.set()
    service.worker.carry_out(claim)
    assert "power on" not in service.machine.commands
    assert [request.node for request in service.pending] == [NODE]
    (lease,) = service.store.read(lambda tx: tx.leases.list(LEASE))
    assert lease.holder is None
