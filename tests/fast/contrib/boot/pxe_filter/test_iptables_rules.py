"""What the chain of MACs in iptables says of each machine; ``tests/system/pxe`` has the kernel carry it out."""

from __future__ import annotations

import pytest

from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.core.boot_macs import spell_mac
from ferroscope.runtime.system import SystemClock

BUSY, IDLE, UNKNOWN = 0x525400BB0001, 0x525400BB0002, 0x525400BB0003


def verdict(rules: list[str], mac: int) -> str:
    """Return the target of the first rule that applies, as the kernel does; RETURN at the end of the chain."""
    for rule in rules:
        condition, found, target = rule.partition(" -j ")
        if found and ("mac" not in condition.split() or spell_mac(mac) in condition.lower()):
            return target
    return "RETURN"


@pytest.mark.parametrize(("unknown", "said"), [(True, "RETURN"), (False, "DROP")])
def test_machines_under_inspection_pass_idle_ones_do_not_and_unknown_ones_if_they_may(
    monkeypatch: pytest.MonkeyPatch, unknown: bool, said: str
) -> None:
    monkeypatch.setattr(IptablesFilter, "_has_timeouts", lambda _: False)  # it would ask the programs
    rules = FilterRules(network="lab", interfaces=("boot",), unknown=unknown)
    chain = IptablesFilter(rules, clock=SystemClock(), timeout=1.0)._mac_chain(allow=[BUSY], deny=[IDLE])
    assert [verdict(chain, mac) for mac in (BUSY, IDLE, UNKNOWN)] == ["RETURN", "DROP", said]
