"""Controllers of failed nodes that trust too much, forget what they have done, or do not end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope import leadership
from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.failover import case, controller, decision, machines, pods, proof, reading, returning
from ferroscope.remote import calls
from tests.simulation.bugs.registry import bug

# A StatefulSet that can move, on workers of which all are known, and nothing else that could hide what is looked for.
_PLAIN: dict[str, Any] = {"kinds": (1.0, 0.0, 0.0, 0.0), "inspected": 1.0, "wrong": 0.0, "control_planes": 1}


@bug(
    "machine-contradicted",
    "a machine is a node's although something else is known of it, or it is another node's",
    rule="ready",
    seeds=10,
    kind="failover",
    faults=(),
    site={**_PLAIN, "wrong": 0.5, "workers": 6, "spares": 0, "mishaps": ("kubelet hangs",), "mean": 60.0},
)
def _() -> Iterator[Any]:
    find = machines.MachineInventory.find

    def trusting(self: Any, node: Any) -> Any:
        """By the annotation or the provider ID alone, if there is one."""
        claims = [one for one in machines._claims(node) if one.names]
        named = [self._by_value.get((one.kind, one.value), set()) for one in claims]
        if named and len(common := set.intersection(*named)) == 1:
            return machines.MachineMatch(self._machines[min(common)])
        return find(self, node)

    yield machines.MachineInventory, "find", trusting
    yield proof, "_doubt", lambda _case, _machine: None  # nor does its BMC's word count


@bug(
    "machine-fixed-early",
    "a node's machine is looked for once, and a correction of its annotation comes to nothing",
    rule="ready",
    seeds=30,
    kind="failover",
    faults=(),
    site={
        **_PLAIN, "wrong": 1.0, "inspected": 0.0, "workers": 6,
        "mishaps": ("kubelet hangs", "bmc silent", "wrong annotation", "wrong annotation"), "mean": 20.0,
    },
)  # fmt: skip
def _() -> Iterator[Any]:
    first: dict[str, Any] = {}
    find = machines.MachineInventory._match_alone

    def once(self: Any, node: Any) -> Any:
        if not node.has_failed:
            first.pop(node.name, None)
            return find(self, node)
        if node.name not in first or first[node.name].machine is None:
            first[node.name] = find(self, node)
        return first[node.name]

    def trusting(self: Any, node: Any) -> Any:
        return once(self, node)

    yield machines.MachineInventory, "find", trusting
    yield proof, "_doubt", lambda _case, _machine: None  # nor does its BMC's word count
    yield machines, "_contradiction", lambda _machine, _claims: ""


@bug(
    "finalizers-awaited",
    "a pod that only waits for its finalizers is taken for one that runs, and all waits for it",
    rule="stuck",
    seeds=10,
    kind="failover",
    faults=(),
    site={**_PLAIN, "kinds": (0.0, 1.0, 0.0, 0.0), "mishaps": ("kubelet hangs",), "minor": 20},
)
def _() -> Iterator[Any]:
    yield pods.Pod, "awaits_finalizers", property(lambda _self: False)


@bug(
    "silent-not-counted",
    "nodes that are silent do not count in the storm guard before Kubernetes marks them",
    rule="storm",
    seeds=10,
    kind="failover",
    faults=(),
    site={**_PLAIN, "workers": 9, "mishaps": ("storm",), "mean": 90.0},
)
def _() -> Iterator[Any]:
    def marked_only(view: Any, rules: Any) -> str:
        failed, allowed = sum(1 for one in view.nodes if one.has_failed), rules.allowed_failures(len(view.nodes))
        return f"{failed} nodes are not ready" if failed > allowed else ""

    yield case, "is_storm", marked_only
    yield reading, "is_storm", marked_only
    yield proof, "start_dwell", lambda _case, record, _node: record  # nor is it awaited whether others follow


@bug(
    "leader-knows-nothing",
    "a new leader powers off before it can know which nodes are silent (found by this simulation)",
    rule="storm",
    seeds=60,
    kind="failover",
    faults=("crash", "crash", "terminate"),
    mean_between_faults=4.0,
    site={**_PLAIN, "workers": 9, "mishaps": ("storm",), "mean": 40.0},
)
def _() -> Iterator[Any]:
    look = reading.ClusterReader._view
    yield (
        reading.ClusterReader,
        "_view",
        lambda self, state: msgspec.structs.replace(look(self, state), watched=float("inf")),
    )
    # Nor does the dwell time begin anew for it.
    yield (
        decision,
        "_take_over",
        lambda record, view, _followed: msgspec.structs.replace(
            record, updated_at=view.now, epoch=view.epoch or record.epoch
        ),
    )


@bug(
    "control-plane-not-guarded",
    "two nodes of the control plane are powered off at once",
    rule="control plane",
    seeds=10,
    kind="failover",
    faults=(),
    site={**_PLAIN, "control_planes": 3, "workers": 6, "mishaps": ("control plane dies",), "mean": 90.0},
)
def _() -> Iterator[Any]:
    yield proof, "quorum_objection", lambda _view, _rules, _node: ("", "")


_UNKNOWN: dict[str, Any] = {
    "kind": "failover",
    "faults": (),
    "site": {**_PLAIN, "mishaps": ("kubelet hangs", "bmc unknown", "bmc unknown", "bmc deaf"), "mean": 20.0},
}


def _unknown_is_off() -> Iterator[Any]:
    ask = role.BmcPower.state

    def state(self: Any, machine: str) -> tuple[Power, bool | None]:
        said, booting = ask(self, machine)
        return Power.OFF if said is Power.UNKNOWN else said, booting

    yield role.BmcPower, "state", state


bug("unknown-is-off", "a BMC that does not say on is taken to say off", rule="proof", seeds=30, **_UNKNOWN)(
    _unknown_is_off
)
bug(
    "unknown-is-off-twice",
    "the same, until a pod runs twice",
    rule="twice",
    seeds=60,
    blind=("proof",),
    **_UNKNOWN,
)(_unknown_is_off)


@bug(
    "frozen-leader-goes-on",
    "a leader that was frozen goes on with what it was about to do",
    rule="I3",
    seeds=20,
    kind="failover",
    hosts=3,
    faults=("pause", "pause", "pause in transaction"),
    mean_between_faults=4.0,
    site={**_PLAIN, "workers": 9, "mishaps": ("partition", "kubelet hangs", "bmc slow"), "mean": 15.0},
)
def _() -> Iterator[Any]:
    yield leadership.StepLeadership, "keep_alive", lambda self: self._leadership.keep_alive()
    yield calls, "check_fence", lambda: float("inf")
    yield role, "fence_commands", _unfenced
    yield controller.Failover, "_save", _unfenced_save


_save = controller.Failover._save


def _unfenced_save(self: Any, tx: Any, _leading: Any, *arguments: Any, **options: Any) -> None:
    class Anybody:
        def fence(self, _tx: Any) -> None: ...

    _save(self, tx, Anybody(), *arguments, **options)  # type: ignore[arg-type]


class _unfenced:  # noqa: N801  # used like a function
    def __init__(self, _left: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_exc: object) -> None: ...


@bug(
    "late-power-off-forgotten",
    "a node that reboots by itself ends its remediation while the power-off is on its way (found by this simulation)",
    rule="stuck",
    seeds=60,
    kind="failover",
    faults=(),
    site={**_PLAIN, "workers": 9, "mishaps": ("machine crashes",), "mean": 25.0},
)
def _() -> Iterator[Any]:
    yield returning, "_late_power_off", lambda _case, _record, _node: None


@bug(
    "deleted-node-forgotten",
    "a node is deleted while its machine is powered off, and nobody is told",
    rule="stuck",
    seeds=40,
    kind="failover",
    faults=(),
    site={**_PLAIN, "mishaps": ("kubelet hangs", "node deleted", "node deleted"), "mean": 25.0},
)
def _() -> Iterator[Any]:
    def end_deleted(case: Any, record: Any) -> Any:
        return case.end(record, returning.Phase.DONE, "node-deleted", "the node was deleted from the cluster")

    yield returning, "end_deleted", end_deleted
