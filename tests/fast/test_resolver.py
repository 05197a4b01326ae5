"""Names are resolved in threads, which no name server that is silent takes from the names of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.remote import resolver
from ferroscope.remote.addresses import Networks
from ferroscope_client.core.reasons import Reason

ADDRESS = "192.0.2.7"
DEAD = [f"bmc{number}.dead.example" for number in range(2 * resolver.MAX_DOMAIN_LOOKUPS)]


@pytest.fixture
def dead_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let the name server of one zone be silent until the event is set; more names of it wait than may."""
    answers = threading.Event()

    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        if host.endswith(".dead.example"):
            answers.wait(30.0)
        return [(0, 0, 0, "", (ADDRESS, 0))]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    for name in DEAD:
        with pytest.raises(resolver.UnresolvedError):
            resolver.resolve(name, 0.0, bmc=True)
    yield answers
    answers.set()


def test_a_dead_zone_takes_no_lookup_from_others(dead_zone: threading.Event) -> None:
    assert resolver.resolve("bmc.ok.example", 5.0, bmc=True) == (ADDRESS,)
    with pytest.raises(resolver.UnresolvedError) as caught:
        resolver.resolve(DEAD[0], 0.05, bmc=True)
    assert not isinstance(caught.value, resolver.NoLookupError)  # it is asked, and not answered


def test_a_name_waits_for_its_turn(dead_zone: threading.Event) -> None:
    began = time.monotonic()
    threading.Timer(0.2, dead_zone.set).start()
    assert resolver.resolve(DEAD[-1], 20.0, bmc=True) == (ADDRESS,)
    assert time.monotonic() - began < 20.0


def test_a_name_that_got_no_turn_is_not_an_attempt(dead_zone: threading.Event) -> None:
    bmc = IpmiBmc(
        DriverOptions(command_timeout=0.1, command_tries=1, limits=BmcLimits(networks=Networks(["192.0.2.0/24"])))
    )
    with pytest.raises(BmcError) as caught:
        bmc.get_power(Node(uuid="1", driver="ipmi", driver_info={"ipmi_address": DEAD[-1]}))
    assert (caught.value.reason, caught.value.transient, caught.value.waits) == (Reason.BMC_BUSY, True, True)
