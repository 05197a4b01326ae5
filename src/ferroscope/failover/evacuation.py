"""After the proof: the node's pods and volumes are freed as long as it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.core.remediation import Phase, Proof, Remediation
from ferroscope.failover.cluster import CONFIRMED_OFF, KubeNode
from ferroscope.failover.pods import Pod
from ferroscope.failover.returning import Returning
from ferroscope.failover.terms import Decision, DeleteAttachment, DeletePod, Effect, SetTaint, is_aged

TAINT_WORKS: Final = 60.0  # seconds after which pods that the taint has not removed are deleted one by one


class Evacuating(Returning):
    """The phases ``evacuating`` and ``evacuated``."""

    def _sign_of_life(self, record: Remediation, node: KubeNode) -> str:
        """Return what says that the node is alive, "" if nothing does."""
        if node.boot_id != record.boot_id:
            return "it has a new boot ID"
        if self._seen.renewal != record.renewal:
            return "its kubelet has renewed its lease"
        if node.ready:
            return "it is ready"
        if self._seen.power_off is False:
            return "its machine is on"
        if self._seen.power is Power.CHANGING:
            return "its machine is being powered on or off"
        if record.proof is Proof.CONFIRMED and not self._confirmed(node):
            return f"its annotation {CONFIRMED_OFF} was removed"
        return ""

    def _evacuating(self, record: Remediation, node: KubeNode) -> Decision:
        if life := self._sign_of_life(record, node):
            return self._proof_ended(record, node, life)
        if (why := self._guard(record, node))[0]:
            return self._kept(record, why)
        if record.proof is Proof.POWER_OFF and self._seen.power_off is None:
            return self._unanswered(record)
        fits, stuck = self._places()
        waited = self._view.now - record.proven_at
        if fits and self._view.taints and not stuck and waited < TAINT_WORKS:
            return self._tainting(record, node, len(fits))
        if fits:
            effects: tuple[Effect, ...] = tuple(DeletePod(one) for one in fits)
            return self._forcing(record, effects, f"deleting {len(fits)} pods")
        volumes = [one for one in self._detachable(stuck) if not one.terminating]
        if volumes:
            return self._forcing(record, tuple(map(DeleteAttachment, volumes)), f"detaching {len(volumes)} volumes")
        message = "its pods and volumes are free"
        refused = [one for one in stuck if one.uid in self._seen.refused]
        if left := [one for one in stuck if one not in refused]:
            message += f", apart from {_named(left)}, which no other node could take"
        if self._seen.refused:
            kept = _named(refused) if refused else "volumes"
            words = next(iter(self._seen.refused.values()))
            message += f"; gave up {kept}, because the API server refuses to delete them: {words}"
            record = self._log(record, "gave-up", message)
        if self._finalizing:
            message += f"; only finalizers keep the dead {_named(self._finalizing)}"
        record = msgspec.structs.replace(record, phase=Phase.EVACUATED)
        return self._wait(self._log(record, "evacuated", message), "evacuated", message)

    def _proof_ended(self, record: Remediation, node: KubeNode, life: str) -> Decision:
        """Force nothing more. What is left of the node's pods may be started by a new boot, so the taint goes, too.

        If the machine that we have powered off is still off, that comes first: perhaps it is another node's.
        """
        message = f"the proof has ended: {life}"
        remove = self._taint_off(record, node)
        record = msgspec.structs.replace(record, proof=Proof.NONE, off_seen=None, commands=0)
        record = self._log(record, "proof-ended", message)
        if record.commanded and self._seen.power_off is not False and self._rules.power_on:
            return self._act(self._bring_back(record, "proof-ended"), "proof-ended", message, *remove)
        until = self._view.now + self._rules.dwell_reporting  # a machine takes minutes to boot
        record = msgspec.structs.replace(record, phase=Phase.DWELL, not_before=until)
        return self._act(record, "proof-ended", message, *remove)

    def _taint_off(self, record: Remediation, node: KubeNode) -> tuple[Effect, ...]:
        return (SetTaint(node, present=False),) if record.tainted and node.out_of_service and self._movable else ()

    def _tainting(self, record: Remediation, node: KubeNode, pods: int) -> Decision:
        if node.out_of_service:
            return self._wait(record, "tainted", f"waiting for the cluster to remove {pods} pods")
        decision = self._forcing(
            record, (SetTaint(node, present=True),), f"tainting the node as out of service, to remove {pods} pods"
        )
        if not decision.effects or decision.record is None:
            return decision
        return msgspec.structs.replace(decision, record=msgspec.structs.replace(decision.record, tainted=True))

    def _forcing(self, record: Remediation, effects: tuple[Effect, ...], message: str) -> Decision:
        if any(is_aged(one, record, self._seen, self._view.clock, self._rules) for one in effects):
            limit = f"proof_age = {self._rules.proof_age:g} s"
            return self._wait(record, "answer-aged", f"the BMC's answer is older than {limit}; it is asked again")
        what = "tainted" if isinstance(effects[0], SetTaint) else "forcing"
        if record.reason != "forcing" or record.message != message:
            record = self._log(record, what, message)
        return self._act(record, "forcing", message, *effects)

    def _evacuated(self, record: Remediation, node: KubeNode) -> Decision:
        return self._returning(self._bring_back(record), node)

    def _confirmed(self, node: KubeNode) -> bool:
        return bool(node.boot_id) and node.annotations.get(CONFIRMED_OFF) == node.boot_id

    def _alive(self) -> bool:
        return self._seen.silent < self._rules.silence


def _named(pods: Sequence[Pod]) -> str:
    """Return names of the pods for people, with their finalizers."""
    names = [
        one.title + (f" ({', '.join(one.metadata.finalizers or ())})" if one.awaits_finalizers else "") for one in pods
    ]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{'pod' if len(names) == 1 else 'pods'} {', '.join(names[:3])}{more}"
