"""A trial of the BMC: it says whether the BMC answers, and leaves the node's state as it is."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope import transition
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.delivery import TRIAL
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from tests.fast.worker.conftest import NODE, Service


def try_bmc(service: Service) -> None:
    service.carry_out(Event.VERIFY, {TRIAL: True})


@pytest.mark.parametrize("rest", [Provision.ENROLL, Provision.MANAGEABLE, Provision.AVAILABLE])
def test_a_bmc_that_answers_clears_the_error_of_a_command(service: Service, rest: Provision) -> None:
    def failed(tx: transition.Transaction) -> None:
        node = transition.rest(tx, tx.nodes.get(NODE), rest)
        tx.nodes.update(msgspec.structs.replace(node, last_error="wrong password (bmc-credentials)."))

    service.store.write(failed)
    try_bmc(service)
    assert (service.node.provision_state, service.node.last_error) == (rest, None)
    assert service.node.power_state == Power.OFF
    assert service.steps[-1] == "verified"


def test_a_bmc_that_does_not_answer_leaves_its_reason(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.MANAGEABLE))
    service.machine.fail = lambda _command: BmcError("wrong password", transient=False)
    try_bmc(service)
    assert service.node.provision_state is Provision.MANAGEABLE
    assert "wrong password" in (service.node.last_error or "")


def test_a_bmc_that_is_silent_is_not_waited_for(service: Service) -> None:
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.MANAGEABLE))
    service.machine.fail = lambda _command: BmcError("no answer", transient=True, reason=Reason.BMC_UNREACHABLE)
    service.submit(Event.VERIFY, {TRIAL: True})
    service.worker.step()
    assert "no answer (bmc-unreachable)" in (service.node.last_error or "")
    assert service.pending == []


def test_a_failed_inspection_stays_failed_with_its_error(service: Service) -> None:
    service.machine.fail = lambda _command: BmcError("wrong password", transient=False)
    service.boot()
    assert service.node.provision_state is Provision.INSPECT_FAILED
    service.machine.fail = lambda _command: None
    try_bmc(service)
    assert service.node.provision_state is Provision.INSPECT_FAILED
    assert "wrong password" in (service.node.last_error or "")
    assert service.steps[-1] == "verified"
