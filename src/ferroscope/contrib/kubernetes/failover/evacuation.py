"""After the proof: the node's pods and volumes are freed as long as it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.case import Case
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, KubeNode
from ferroscope.contrib.kubernetes.failover.pods import Pod
from ferroscope.contrib.kubernetes.failover.returning import await_return, bring_back, wait_for_bmc, wait_for_guard
from ferroscope.contrib.kubernetes.failover.terms import (
    Decision,
    DeleteAttachment,
    DeletePod,
    Effect,
    SetTaint,
    is_aged,
)
from ferroscope.core.remediation import Phase, Proof, Remediation, postpone
from ferroscope_client.core.values import many

TAINT_WORKS_SECONDS: Final = 60.0  # seconds after which pods that the taint has not removed are deleted one by one

# Seconds in which a volume of a deleted pod is detached, although a dead pod that stays has it, too: Kubernetes might
# attach it here again and again, and the machine is powered on after that.
DETACH_SHARED_SECONDS: Final = 180.0


def _sign_of_life(case: Case, record: Remediation, node: KubeNode) -> str:
    """Return what says that the node is alive, "" if nothing does."""
    if node.boot_id != record.boot_id:
        return "it has a new boot ID"
    if case.reading.renewal != record.renewal:
        return "its kubelet has renewed its lease"
    if node.ready:
        return "it is ready"
    if case.reading.power_off is False:
        return "its machine is on"
    if case.reading.power is Power.CHANGING:
        return "its machine is being powered on or off"
    if record.proof is Proof.CONFIRMED and not is_confirmed(record, node):
        return f"its annotation {CONFIRMED_OFF} was removed"
    return ""


def evacuate(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Free what can be freed, one kind after the other; wait while the proof cannot be confirmed."""
    if life := _sign_of_life(case, record, node):
        return end_proof(case, record, node, life)
    if (why := case.guard(record, node))[0]:
        return wait_for_guard(case, record, why)
    if case.reading.unread:
        return case.wait(record, *case.unread)
    if record.proof is Proof.POWER_OFF and case.reading.power_off is None:
        return wait_for_bmc(case, record)
    fits, stuck = case.sort_by_fit()
    waited = case.view.now - record.proven_at
    if fits and case.view.taints and not stuck and waited < TAINT_WORKS_SECONDS:
        return _tainting(case, record, node, len(fits))
    if fits:
        effects: tuple[Effect, ...] = tuple(DeletePod(pod) for pod in fits)
        names = {volume.name for pod in fits for volume in case.reading.volumes_of(pod)}
        record = msgspec.structs.replace(record, detach=tuple(sorted({*record.detach, *names})))
        return _forcing(case, record, effects, f"deleting {many(len(fits), 'pod')}")
    moved = record.detach if waited < DETACH_SHARED_SECONDS else ()
    volumes = [attachment for attachment in case.detachable(stuck, moved) if not attachment.terminating]
    if volumes:
        return _forcing(
            case, record, tuple(map(DeleteAttachment, volumes)), f"detaching {many(len(volumes), 'volume')}"
        )
    message = "its pods and volumes are free"
    refused = [pod for pod in stuck if pod.uid in case.reading.refused]
    if left := [pod for pod in stuck if pod not in refused]:
        message += f", apart from {_pod_names(left)}, which no other node could take"
    if case.reading.refused:
        kept = _pod_names(refused) if refused else "volumes"
        words = next(iter(case.reading.refused.values()))
        message += f"; gave up {kept}, because the API server refuses to delete them: {words}"
        record = case.log(record, "gave-up", message)
    if case.finalizing:
        message += f"; only finalizers keep the dead {_pod_names(case.finalizing)}"
    record = msgspec.structs.replace(record, phase=Phase.EVACUATED)
    return case.wait(case.log(record, "evacuated", message), "evacuated", message)


def end_proof(case: Case, record: Remediation, node: KubeNode, life: str) -> Decision:
    """Force nothing more. What is left of the node's pods may be started by a new boot, so the taint goes, too.

    If the machine that we have powered off is still off, that comes first: perhaps it is another node's.
    """
    message = f"the proof has ended: {life}"
    remove = taint_removal(case, record, node)
    record = msgspec.structs.replace(
        record,
        proof=Proof.NONE,
        renewal=case.reading.renewal,
        off_seen=None,
        commands=0,
        old_confirmation=node.confirmed_off,
    )
    record = case.log(record, "proof-ended", message)
    if record.commanded and case.reading.power_off is not False and case.rules.power_on:
        return case.act(bring_back(record, "proof-ended"), "proof-ended", message, *remove)
    record = postpone(record, case.view.now, case.rules.dwell_reporting)  # a machine takes minutes to boot
    record = msgspec.structs.replace(record, phase=Phase.DWELL)
    return case.act(record, "proof-ended", message, *remove)


def taint_removal(case: Case, record: Remediation, node: KubeNode) -> tuple[Effect, ...]:
    """Return the removal of our taint, if it is there and pods would feel it."""
    return (SetTaint(node, present=False),) if record.tainted and node.out_of_service and case.movable else ()


def _tainting(case: Case, record: Remediation, node: KubeNode, pods: int) -> Decision:
    if node.out_of_service:
        return case.wait(record, "tainted", f"waiting for the cluster to remove {many(pods, 'pod')}")
    decision = _forcing(
        case,
        record,
        (SetTaint(node, present=True),),
        f"tainting the node as out of service, to remove {many(pods, 'pod')}",
    )
    if not decision.effects or decision.record is None:
        return decision
    return msgspec.structs.replace(decision, record=msgspec.structs.replace(decision.record, tainted=True))


def _forcing(case: Case, record: Remediation, effects: tuple[Effect, ...], message: str) -> Decision:
    if any(is_aged(effect, record, case.reading, case.view.clock, case.rules) for effect in effects):
        limit = f"proof_age = {case.rules.proof_age:g} s"
        return case.wait(record, "answer-aged", f"the BMC's answer is older than {limit}; it is asked again")
    code = "tainted" if isinstance(effects[0], SetTaint) else "forcing"
    if record.reason != "forcing" or record.message != message:
        record = case.log(record, code, message)
    return case.act(record, "forcing", message, *effects)


def finish_evacuation(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Power the machine on again: everything is free."""
    return await_return(case, bring_back(record), node)


def is_confirmed(record: Remediation, node: KubeNode) -> bool:
    """Whether an operator has confirmed, after this failure and for this boot, that the machine is off."""
    return node.confirmed_off and not record.old_confirmation


def kubelet_lives(case: Case) -> bool:
    """Whether the kubelet has renewed its lease a moment ago."""
    return case.reading.silent < case.rules.silence


def _pod_names(pods: Sequence[Pod]) -> str:
    """Return names of the pods for people, with their finalizers."""
    names = [
        pod.title + (f" ({', '.join(pod.metadata.finalizers or ())})" if pod.awaits_finalizers else "") for pod in pods
    ]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{'pod' if len(names) == 1 else 'pods'} {', '.join(names[:3])}{more}"
