"""Which node called back where several nodes match: what tells machines apart decides, and no other project's claim."""

from __future__ import annotations

from typing import Any

from ferroscope.core.lookup import Candidates, Evidence, LookupRefusal, NodeMatch, Verdict, decide, without_claims
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import RAMDISK, State
from tests.support.rows import each

A, B = (Node(uuid=name, driver="fake") for name in "ab")
# The machine is that of THEIRS; OTHER is a node of another project.
THEIRS = Node(uuid="theirs", driver="fake", owner="b", state=State.WAITING)
OTHER = Node(uuid="other", driver="fake", owner="a", state=State.WAITING)
OWN, SHARED = "52:54:00:00:00:01", "52:54:00:00:00:02"


def judged(*, boot: str | None = None, uuid: str | None = None, **known: Any) -> Verdict:
    evidence = Evidence(uuid=uuid, macs=(OWN, SHARED), bmc_addresses=("192.0.2.1",), boot_mac=boot)
    return decide(evidence, Candidates(**known))


def node_of(verdict: Verdict) -> str | Reason:
    return verdict.node.uuid if isinstance(verdict, NodeMatch) else verdict.reason


SHARING = {"by_mac": (A, B), "matches": {OWN: "b", SHARED: "a"}}
CLAIMED = {"by_mac": (OTHER, THEIRS), "matches": {OWN: "theirs", SHARED: "other"}}


@each(
    "verdict",
    [
        judged(boot=OWN, **SHARING),
        judged(uuid="b", by_uuid=B, **SHARING),
        judged(uuid="b", by_uuid=B, boot=OWN, **SHARING),
        judged(by_secret=B, **SHARING),
        judged(by_secret=B, by_mac=(A,), matches={SHARED: "a"}),
        judged(by_secret=B),
        judged(by_secret=B, over_bmc=True, by_bmc=(A,), **SHARING),
        judged(by_bmc=(B,), **SHARING),
        judged(same=frozenset("b"), **SHARING),
    ],
)
def test_what_tells_machines_apart_decides_where_they_share_a_mac(verdict: Verdict) -> None:
    assert node_of(verdict) == "b"


def test_the_nodes_that_have_macs_of_the_machine_too_are_named() -> None:
    found = judged(boot=OWN, **SHARING)
    assert isinstance(found, NodeMatch)
    assert found.elsewhere == {SHARED: "a"}
    refused = judged(**SHARING)
    assert isinstance(refused, LookupRefusal)
    assert set(refused.nodes) == {"a", "b"}
    assert f"node a has {SHARED}" in refused.message
    assert f"node b has {OWN}" in refused.message
    assert "ignored_macs" in refused.message


@each(
    "verdict",
    [
        judged(uuid="a", by_uuid=A, by_secret=B),
        judged(uuid="a", by_uuid=A, boot=OWN, **SHARING),
        judged(uuid="b", by_uuid=B, by_mac=(A,), matches={SHARED: "a"}),
        judged(boot=OWN, by_bmc=(A,), **SHARING),
        # A boot script is given to whoever asks for the MAC that boots, so it does not outweigh the BMC.
        judged(by_secret=B, by_bmc=(A,), **SHARING),
    ],
)
def test_evidence_of_one_project_that_contradicts_itself_is_refused(verdict: Verdict) -> None:
    assert node_of(verdict) == Reason.LOOKUP_CONFLICT


@each(
    "verdict",
    [
        judged(boot=OWN, **CLAIMED),
        judged(by_secret=THEIRS, **CLAIMED),
        judged(by_secret=THEIRS, by_mac=(OTHER,), matches={SHARED: "other"}),
        judged(by_secret=THEIRS, over_bmc=True, by_bmc=(OTHER,), **CLAIMED),
        judged(boot=OWN, by_bmc=(OTHER, THEIRS), **CLAIMED),
        judged(uuid="theirs", by_uuid=THEIRS, **CLAIMED),
        judged(uuid="theirs", by_uuid=THEIRS, boot=SHARED, **CLAIMED),
        judged(uuid="theirs", by_uuid=THEIRS, by_mac=(OTHER,), matches={OWN: "other", SHARED: "other"}),
    ],
)
def test_a_claim_of_another_project_never_stops_a_machine(verdict: Verdict) -> None:
    assert node_of(verdict) == "theirs"


def test_a_project_does_not_get_a_known_machine_that_boots_from_a_nic_it_claims() -> None:
    theirs = frozenset(["theirs"])
    for known in ({"boot": SHARED}, {"by_secret": OTHER}):
        assert node_of(judged(same=theirs, **known, **CLAIMED)) == Reason.LOOKUP_CONFLICT  # type: ignore[arg-type]
    assert node_of(judged(boot=SHARED, by_bmc=(THEIRS,), **CLAIMED)) == Reason.LOOKUP_CONFLICT
    # Nodes of one project may have the same placeholder for a serial number.
    assert node_of(judged(boot=OWN, same=frozenset("a"), **SHARING)) == "b"


def test_another_machine_that_shares_a_mac_is_unknown() -> None:
    known = {"by_mac": (A,), "matches": {SHARED: "a"}, "different": frozenset("a")}
    refused = judged(boot=OWN, **known)
    assert isinstance(refused, LookupRefusal)
    assert (refused.reason, refused.elsewhere) == (Reason.LOOKUP_UNKNOWN, {SHARED: "a"})
    assert "node a" in refused.message
    assert node_of(judged(boot=SHARED, **known)) == "a"
    assert node_of(judged(**known)) == "a"


def test_a_waiting_node_is_found_by_any_nic_even_with_another_mainboard() -> None:
    waiting = Node(uuid="a", driver="fake", state=State.WAITING)
    known = {"by_mac": (waiting,), "matches": {SHARED: "a"}, "different": frozenset("a")}
    assert node_of(judged(boot=OWN, **known)) == "a"


def test_only_claims_of_projects_whose_ramdisk_does_not_run_are_left_out() -> None:
    idle = Node(uuid="idle", driver="fake", owner="a")
    own = Node(uuid="own", driver="fake", owner="b")

    def left(*nodes: Node) -> list[str]:
        return [node.uuid for node in without_claims(Candidates(by_mac=nodes), RAMDISK).by_mac]

    assert left(THEIRS, idle) == ["theirs"]
    assert left(THEIRS, own) == ["theirs", "own"]
    assert left(THEIRS, OTHER) == ["theirs", "other"]
    assert left(idle, own) == ["idle", "own"]
