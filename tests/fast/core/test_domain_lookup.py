"""Which node called back: exactly one, or a refusal that says why to us alone."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core.lookup import Candidates, Evidence, LookupRefusal, NodeMatch, by_bmc_alone, decide
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each

A, B, C = (Node(uuid=name, driver="fake") for name in "abc")
MACS, BMC = ("02:00:00:00:00:01",), ("192.0.2.1",)


def verdict(
    *,
    uuid: bool = False,
    by_uuid: Node | None = None,
    by_mac: tuple[Node, ...] = (),
    by_bmc: tuple[Node, ...] = (),
) -> NodeMatch | LookupRefusal:
    evidence = Evidence(uuid="a" if uuid or by_uuid else None, macs=MACS, bmc_addresses=BMC)
    return decide(evidence, Candidates(by_uuid=by_uuid, by_mac=by_mac, by_bmc=by_bmc))


def refused(result: NodeMatch | LookupRefusal) -> tuple[Reason, set[str]]:
    assert isinstance(result, LookupRefusal)
    assert result.message
    return result.reason, set(result.nodes)


@each(
    "result",
    [
        verdict(by_uuid=A),
        verdict(by_mac=(A,)),
        verdict(by_bmc=(A,)),
        verdict(by_uuid=A, by_mac=(A,)),
        verdict(by_uuid=A, by_bmc=(A,)),
        verdict(by_mac=(A,), by_bmc=(A,)),
        verdict(by_uuid=A, by_mac=(A,), by_bmc=(A,)),
        verdict(by_uuid=A, by_mac=(A, B)),
        verdict(by_mac=(A, B), by_bmc=(A,)),
    ],
)
def test_every_kind_of_evidence_finds_the_node(result: NodeMatch | LookupRefusal) -> None:
    assert isinstance(result, NodeMatch)
    assert result.node == A


@each("known_macs", [True, False])
def test_a_bmc_address_alone_means_a_node_only_if_no_mac_of_it_is_known(known_macs: bool) -> None:
    evidence = Evidence(macs=MACS, bmc_addresses=BMC)
    alone = verdict(by_bmc=(A,))
    assert isinstance(alone, NodeMatch)
    judged = by_bmc_alone(alone, evidence, known_macs=known_macs)
    assert judged == (alone if not known_macs else judged)
    if known_macs:
        assert refused(judged) == (Reason.LOOKUP_BMC_ALONE, {A.uuid})
    assert by_bmc_alone(NodeMatch(A), evidence, known_macs=True) == NodeMatch(A)


def test_a_bmc_that_several_nodes_share_is_settled_by_the_mac() -> None:
    assert verdict(by_mac=(A,), by_bmc=(B, A)) == NodeMatch(A)
    assert verdict(by_uuid=A, by_bmc=(A, B)) == NodeMatch(A)


def test_nothing_found_is_refused() -> None:
    assert refused(verdict()) == (Reason.LOOKUP_UNKNOWN, set())


def test_an_unknown_uuid_is_refused_whatever_else_matches() -> None:
    assert refused(verdict(uuid=True, by_mac=(A,), by_bmc=(A,))) == (Reason.LOOKUP_UNKNOWN, set())


def test_macs_of_several_nodes_are_refused_if_nothing_else_tells_the_machine() -> None:
    assert refused(verdict(by_mac=(A, B))) == (Reason.LOOKUP_AMBIGUOUS, {"a", "b"})
    assert refused(verdict(by_uuid=A, by_mac=(B, C))) == (Reason.LOOKUP_CONFLICT, {"a", "b"})


def test_a_bmc_of_several_nodes_alone_is_refused() -> None:
    assert refused(verdict(by_bmc=(A, B))) == (Reason.LOOKUP_AMBIGUOUS, {"a", "b"})


def test_evidence_that_points_to_different_nodes_is_refused() -> None:
    assert refused(verdict(by_uuid=A, by_mac=(B,))) == (Reason.LOOKUP_CONFLICT, {"a", "b"})
    assert refused(verdict(by_uuid=A, by_bmc=(B,))) == (Reason.LOOKUP_CONFLICT, {"a", "b"})
    assert refused(verdict(by_mac=(A,), by_bmc=(B, C))) == (Reason.LOOKUP_CONFLICT, {"a", "b"})


NODES = st.lists(st.sampled_from([A, B, C]), unique_by=lambda node: node.uuid, max_size=3).map(tuple)


@given(st.sampled_from([None, A, B]), st.booleans(), NODES, NODES)
def test_a_node_is_found_only_if_no_evidence_speaks_against_it(
    by_uuid: Node | None, uuid: bool, by_mac: tuple[Node, ...], by_bmc: tuple[Node, ...]
) -> None:
    result = verdict(uuid=uuid, by_uuid=by_uuid, by_mac=by_mac, by_bmc=by_bmc)
    if isinstance(result, LookupRefusal):
        return
    assert by_uuid in (None, result.node)
    assert by_uuid is not None or not uuid
    assert not by_mac or result.node in by_mac
    assert not by_bmc or result.node in by_bmc
    assert by_uuid or by_mac or len(by_bmc) == 1
    assert by_uuid or len(by_mac) < 2 or len({node.uuid for node in by_mac} & {node.uuid for node in by_bmc}) == 1


def test_every_combination_gives_one_verdict_and_the_order_of_candidates_does_not_matter() -> None:
    for macs, bmcs in itertools.product(itertools.permutations((A, B, C), 2), repeat=2):
        one = verdict(by_mac=macs[:1], by_bmc=bmcs)
        two = verdict(by_mac=macs[:1], by_bmc=bmcs[::-1])
        assert type(one) is type(two)
        assert isinstance(one, LookupRefusal) or one == two
