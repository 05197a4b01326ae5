"""What is at the address of a BMC that has answered before: a portal, a proxy, a BMC that restarts, a lost privilege.

The system is found in the collection of systems; what is there instead is said, not that there is no system.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from tests.fast.bmc.conftest import hurried
from tests.support.scripted_redfish import Answer, ScriptedBmc, answer

PAGE = b"<html>Please log in to the network</html>"


@pytest.mark.parametrize(
    ("given", "transient", "reason", "words"),
    [
        (answer(200, PAGE), True, Reason.BMC_NOT_READY, "a web page instead of its systems"),
        (answer(200, b"\n"), True, Reason.BMC_NOT_READY, "empty instead of its systems"),
        (answer(200, b"[]"), True, Reason.BMC_NOT_READY, "not a JSON object instead of its systems"),
        (
            answer(302, PAGE, Location="https://portal.example.com/login"),
            False,
            Reason.BMC_REFUSED,
            "redirects to another host",
        ),
        (answer(403), False, Reason.BMC_PRIVILEGES, "lacks the privilege"),
        (answer(511, PAGE), False, Reason.BMC_REFUSED, "HTTP 511"),
        (answer(404), True, Reason.BMC_SYSTEM_UNCLEAR, "lists no system"),
        (answer(200, {"Name": "Systems", "Members": []}), True, Reason.BMC_SYSTEM_UNCLEAR, "lists no system"),
    ],
    ids=["page", "empty", "array", "portal", "privilege", "511", "404", "none"],
)
def test_what_is_there_instead_of_the_systems_is_said(
    bmc: ScriptedBmc, given: Answer, transient: bool, reason: Reason, words: str
) -> None:
    with closing(hurried(waits=6)) as driver:
        assert driver.get_power(bmc.node()) is Power.ON
        for path in ("/Systems", "/login"):  # a portal redirects all
            bmc.will(given, at=path, times=1000)
        with pytest.raises(BmcError, match=words) as caught:
            driver.get_power(bmc.node())
        assert (caught.value.transient, caught.value.reason) == (transient, reason)
        bmc.first.clear()
        assert hurried().get_power(bmc.node()) is Power.ON
