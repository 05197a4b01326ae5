"""What drivers make of a BMC's words about the power: everything that is not said is unknown, and only "off" is off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import sushy

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.redfish import system as redfish
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contrib.openstack.bmc import IronicBmc
from ferroscope.core.model import Node
from ferroscope.remote.retry import Once
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each

ABSENT = object()
WORDS = ["", "off", "OFF", "Off ", "Unknown", "Reset", "power off"]
NONSENSE: list[Any] = [None, *WORDS, 0, 1, False, True, [], ["Off"], {}]


class System:
    """A Redfish system as sushy shows it: the document, and the resets that it is sent."""

    def __init__(self, state: object, *, later: object = ABSENT, refuses: bool = False) -> None:
        self.json = {} if state is ABSENT else {"PowerState": state}
        self.path = "/redfish/v1/Systems/1"
        self._conn = SimpleNamespace(task="")
        self.resets: list[Any] = []
        self._conn = SimpleNamespace(task="")
        self._later, self._refuses = later, refuses

    def get_allowed_reset_system_values(self) -> set[Any]:
        return set(sushy.ResetType)

    def reset_system(self, kind: Any) -> None:
        self.resets.append(kind)
        if self._refuses:
            raise sushy.exceptions.HTTPError("POST", self.path, _Response())

    def refresh(self, *, force: bool) -> None:
        assert force
        if self._later is not ABSENT:
            self.json = {"PowerState": self._later}


class _Response:
    status_code = 400
    headers: dict[str, str] = {}
    text = ""

    def json(self) -> dict[str, str]:
        return {}


@each(
    ("said", "power"),
    [
        ("On", Power.ON),
        ("Paused", Power.ON),  # it has power: dsx-ai-factory/infra-controller#6350
        ("Off", Power.OFF),
        # https://github.com/ClusterLabs/fence-agents/pull/253
        ("PoweringOn", Power.CHANGING),
        ("PoweringOff", Power.CHANGING),
        (ABSENT, Power.UNKNOWN),
        *((value, Power.UNKNOWN) for value in NONSENSE),
    ],
)
def test_only_off_of_a_redfish_system_is_off(said: object, power: Power) -> None:
    assert redfish.read_power(System(said)) is power


@each("said", ["On", "Paused", "PoweringOn", "PoweringOff", ABSENT, None, "Unknown"])
def test_power_is_cut_unless_the_system_says_that_it_is_off(said: object) -> None:
    system, off = System(said), System("Off")
    redfish.set_power(system, Power.OFF)
    redfish.set_power(off, Power.OFF)
    assert (system.resets, off.resets) == ([sushy.ResetType.FORCE_OFF], [])


@each("said", ["Off", "PoweringOff", ABSENT, None, "Unknown"])
def test_power_is_switched_on_unless_the_system_is_on_or_becoming_so(said: object) -> None:
    system = System(said)
    redfish.set_power(system, Power.ON)
    assert system.resets == [sushy.ResetType.ON]
    for other in (System("On"), System("PoweringOn")):
        redfish.set_power(other, Power.ON)
        assert other.resets == []


@each("said", ["PoweringOn", "PoweringOff", ABSENT, None, "Unknown"])
def test_a_system_that_may_be_off_is_not_reset(said: object) -> None:
    system = System(said)
    with pytest.raises(BmcError) as caught:
        redfish.reboot(system, Once())
    assert (caught.value.transient, caught.value.reason) == (True, Reason.POWER_FAILED)
    assert system.resets == []


@each(("before", "after"), [("Off", "PoweringOn"), ("Off", None), ("Off", "On"), ("PoweringOff", "PoweringOff")])
def test_a_refused_power_off_counts_by_what_the_system_says_after_it(before: object, after: object) -> None:
    with pytest.raises(sushy.exceptions.HTTPError):
        redfish.force_off(System(before, later=after, refuses=True))


def test_a_power_off_says_whether_it_was_accepted() -> None:
    assert redfish.force_off(System("Off")) is True
    assert redfish.force_off(System(None, later="Off", refuses=True)) is False


@each("said", [None, "off", "rebooting", "soft power off", "changing", "", 0, False, ["power off"]])
def test_only_power_off_of_ironic_is_off(said: object) -> None:
    assert _ironic(power_state=said).get_power(Node(uuid="1", driver="x")) in (Power.UNKNOWN, Power.CHANGING)


@each("observed", ["power off", "power on", None])
def test_a_state_that_ironic_is_changing_is_not_the_one_it_has_observed(observed: object) -> None:
    bmc = _ironic(power_state=observed, target_power_state="power on")
    assert bmc.get_power(Node(uuid="1", driver="x")) is Power.CHANGING


def _ironic(**document: object) -> IronicBmc:
    client: Any = SimpleNamespace(power=lambda _uuid: {"provision_state": "manageable", "last_error": None, **document})
    return IronicBmc(DriverOptions(ironic=client))


def test_the_driver_of_ironic_needs_an_attached_ironic() -> None:
    with pytest.raises(ValueError, match=r"belongs to \[registry\] backend = ironic"):
        IronicBmc(DriverOptions())
