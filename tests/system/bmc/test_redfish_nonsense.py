"""A BMC that answers nonsense in the right shape: whatever it says, the driver says BmcError or something sound."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ferroscope.contracts.bmc import BootDevice, OutOfBandNic, Power
from ferroscope.contracts.errors import BmcError
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.redfish import Emulator, node_at, system_uuid
from tests.system.bmc.conftest import MakeBmc

_ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x" * 3000,
    [],
    [[]],
    {},
    {"@odata.id": 7},
    "\x00",
    "../../",
    [None],
)


def mangled(document: Any, chance: random.Random) -> Any:
    """Return the document with about a tenth of its values replaced by something odd."""
    if chance.random() < 0.1:
        return chance.choice(_ODD)
    if isinstance(document, dict):
        return {key: mangled(value, chance) for key, value in document.items()}
    return [mangled(value, chance) for value in document] if isinstance(document, list) else document


def nonsense(chance: random.Random) -> Fault:
    """Pass the request on, and mangle the answer."""

    def act(handler: Any) -> None:
        code, body = handler.forwarded()
        handler.answer(code, json.dumps(mangled(json.loads(body), chance)).encode() if body else body)

    return act


@pytest.mark.parametrize("seed", range(12))
def test_nonsense_is_an_error_or_something_sound(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc, seed: int
) -> None:
    chance = random.Random(seed)
    bmc, node = make_bmc(timeout=2.0, inventory_timeout=3.0), node_at(proxy.url, 41)
    proxy.will(nonsense(chance), times=10_000, method="GET", path=system_uuid(41))
    outcomes = []
    for call in (bmc.get_power, bmc.get_boot_device, bmc.nics, bmc.inventory) * 2:
        try:
            outcomes.append(call(node))
        except BmcError as exc:
            outcomes.append(exc)
    for found in outcomes:
        assert isinstance(found, (Power, tuple, list, dict, BmcError)), found
        if isinstance(found, list):
            assert all(isinstance(nic, OutOfBandNic) and len(nic.mac) == 17 for nic in found)
        if isinstance(found, tuple):
            assert found[0] is None or isinstance(found[0], BootDevice)
        if isinstance(found, dict):
            json.dumps(found, allow_nan=False)
        if isinstance(found, BmcError):
            assert len(str(found)) < 400


def test_an_answer_nested_without_end(proxy: FaultyProxy, make_bmc: MakeBmc) -> None:
    proxy.will(lambda handler: handler.answer(200, b"[" * 1_000_000), times=100)
    with pytest.raises(BmcError):
        make_bmc(timeout=2.0).get_power(node_at(proxy.url, 41))
