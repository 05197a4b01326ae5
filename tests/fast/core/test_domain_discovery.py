"""Which unknown machine becomes a node."""

from __future__ import annotations

from ferroscope.core.lookup import DiscoveryLimits, Evidence, Rejection, discoverable, refuse_rejected, too_many
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each

LIMITS = DiscoveryLimits(per_minute=10, waiting=3)


def test_a_machine_needs_a_mac_and_must_not_say_which_node_it_is() -> None:
    assert discoverable(Evidence(macs=("aa:bb:cc:00:00:01",)))
    assert not discoverable(Evidence(bmc_addresses=("192.0.2.1",)))
    assert not discoverable(Evidence(uuid="11111111-1111-4111-8111-111111111111", macs=("aa:bb:cc:00:00:01",)))


@each(("made", "unclaimed", "option"), [(9, 2, None), (10, 0, "max_per_minute"), (0, 3, "max_waiting"), (0, 4, "max_")])
def test_limits_are_reached_by_the_minute_and_by_number(made: int, unclaimed: int, option: str | None) -> None:
    refusal = too_many(LIMITS, made=made, unclaimed=unclaimed)
    if option is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.reason is Reason.DISCOVERY_LIMITED
        assert option in refusal.message


def test_a_rejection_counts_until_it_is_forgotten() -> None:
    old = Rejection(address="aa:bb:cc:00:00:01", node="n", rejected_at=100.0)
    assert refuse_rejected([old], since=100.5) is None
    refusal = refuse_rejected([old], since=100.0)
    assert refusal is not None
    assert (refusal.reason, refusal.nodes) == (Reason.DISCOVERY_REJECTED, ())
    assert refuse_rejected([], since=0.0) is None
