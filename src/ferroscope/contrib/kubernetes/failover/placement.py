"""The nodes that a pod's affinity to other pods allows. Pure.

Only the pod's own requirements count. If the other pods are unknown, every node is allowed.
Source: the Kubernetes API reference, core/v1, PodAffinityTerm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.pods import Pod, PodTerm

MAX_QUERIES: Final = 20  # for the pods of one node


class PodQuery(NamedTuple):
    """The pods with labels that ``selector`` selects, in one namespace, or with "" in all."""

    namespace: str
    selector: str


def queries_of(pods: Iterable[Pod]) -> list[PodQuery]:
    """Return the queries to the API server that tell where these pods may run; the first ones, if many."""
    needed: dict[PodQuery, None] = {}
    for pod in pods:
        for term in (*pod.affinity_to_pods, *pod.anti_affinity_to_pods):
            needed |= dict.fromkeys(_queries(term, pod) or ())
    return list(needed)[:MAX_QUERIES]


def _queries(term: PodTerm, pod: Pod) -> list[PodQuery] | None:
    """Return the queries for the pods that the term names; None if it selects namespaces by labels, which we may not
    read.
    """
    if term.label_selector is None:
        return []
    if term.namespace_selector is not None and term.namespace_selector.requirements:
        return None
    selector = term.label_selector.query
    if term.namespace_selector is not None:
        return [PodQuery("", selector)]
    return [PodQuery(name, selector) for name in sorted(term.namespaces or [pod.metadata.namespace])]


class Neighbors:
    """The pods on all nodes but ``apart`` that affinities name; ``moving`` are the pods that leave it."""

    def __init__(
        self,
        nodes: Iterable[KubeNode],
        apart: str,
        answers: Mapping[PodQuery, Sequence[Pod] | None],
        moving: Sequence[Pod],
    ) -> None:
        self._labels = {node.name: node.labels for node in nodes if node.name != apart}
        self._answers = answers
        self.moving = moving
        self._domains: dict[tuple[str, ...], set[str] | None] = {}

    def allow(self, pod: Pod, node: KubeNode) -> bool:
        """Whether the pod's affinities allow it on the node, as far as that is known."""
        for term in pod.anti_affinity_to_pods:
            occupied = self._occupied_domains(term, pod)
            if occupied and node.labels.get(term.topology_key) in occupied:
                return False
        for term in pod.affinity_to_pods:
            occupied = self._occupied_domains(term, pod)
            if occupied is None:
                continue
            domain = node.labels.get(term.topology_key)
            if domain is None or (domain not in occupied if occupied else not self._is_first(term, pod)):
                return False
        return True

    def _occupied_domains(self, term: PodTerm, pod: Pod) -> set[str] | None:
        """Return the values of the topology key where pods that the term names run; None if that is not known."""
        queries = _queries(term, pod)
        if queries is None:
            return None
        key = (term.topology_key, *(text for query in queries for text in query))
        if key not in self._domains:
            self._domains[key] = self._read(term.topology_key, queries)
        return self._domains[key]

    def _read(self, topology_key: str, queries: Iterable[PodQuery]) -> set[str] | None:
        occupied = set()
        for query in queries:
            answer = self._answers.get(query)
            if answer is None:
                return None
            for pod in answer:
                labels = self._labels.get(pod.spec.node_name, {})
                if pod.runs and not pod.terminating and topology_key in labels:
                    occupied.add(labels[topology_key])
        return occupied

    def _is_first(self, term: PodTerm, pod: Pod) -> bool:
        """Whether no such pod has to be there before: the pod is one itself, or one moves with it."""
        selector = term.label_selector
        return selector is not None and any(
            selector.matches(mover.metadata.labels or {})
            for mover in self.moving
            if mover.uid == pod.uid or mover.metadata.namespace == pod.metadata.namespace or term.namespaces
        )
