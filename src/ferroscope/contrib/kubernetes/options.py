"""Options of the controller of failed nodes."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.declaration import Opt

CLUSTER_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
UNHEALTHY_LIMIT: Final = re.compile(r"[1-9][0-9]{0,5}|[0-9]{1,2}(\.[0-9]+)?%|100%")


_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?:([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_MAX_PATIENCE_SECONDS: Final = 86_400.0


def patience_of(text: str) -> tuple[str, float]:
    """Return the label, as ``KEY:VALUE``, and the seconds of an item of ``patience``; ``ValueError``."""
    label, _, seconds = text.rpartition(":")
    duration = float(seconds)
    if not _LABEL.fullmatch(label) or not 0.0 <= duration <= _MAX_PATIENCE_SECONDS:
        raise ValueError(text)
    return label, duration


class FailoverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[failover]``: frees the pods and volumes of a failed Kubernetes node, with proof that its machine is off."""

    after: ClassVar[str] = "boot"

    kubeconfig: Annotated[
        str, Opt("kubeconfig file of the cluster; empty: the service account of the pod, or the usual kubeconfig.")
    ] = ""
    context: Annotated[str, Opt("Context in the kubeconfig; empty: its current one.")] = ""
    cluster: Annotated[
        str, Opt("Name of the cluster here; processes with the same name elect one leader. Lower case, at most 63.")
    ] = "default"
    request_timeout: Annotated[
        float, Opt("Timeout of one call to the Kubernetes API, in seconds; less than the lease's.", ge=0.5, le=30)
    ] = 4.0
    api_servers: Annotated[
        tuple[str, ...],
        Opt(
            "URLs of the cluster's API servers. If set, nothing is done unless two of them answer (one, if it is one)."
        ),
    ] = ()
    mode: Annotated[
        Literal["proof", "label"],
        Opt(
            "proof: pods are freed when their machine is proven to be off. label: pods that label_selector selects in "
            "label_namespaces are deleted as soon as their node is not ready, WITHOUT proof: they may run twice."
        ),
    ] = "proof"
    label_selector: Annotated[dict[str, str], Opt("Labels of the pods of mode label: KEY:VALUE,...")] = {}
    label_namespaces: Annotated[tuple[str, ...], Opt("Namespaces of the pods of mode label.")] = ()
    label_force: Annotated[
        bool,
        Opt(
            "In mode label, delete the selected pods without asking disruption budgets, also those that fit no other "
            "node, and detach their volumes once they are gone. A pod that still runs may then damage its data."
        ),
    ] = False
    dwell: Annotated[
        float,
        Opt("Seconds for which a node must have been not ready before its machine is powered off.", ge=0, le=3600),
    ] = 20.0
    dwell_reporting: Annotated[
        float,
        Opt(
            "The same for a node whose kubelet itself reports that it is not ready, or whose BMC shows that its "
            "machine boots, in seconds.",
            ge=0,
            le=86400,
        ),
    ] = 300.0
    patience: Annotated[
        tuple[str, ...],
        Opt(
            "dwell for the nodes with a label, as KEY:VALUE:SECONDS,...: pool:storage:600 for machines that take long "
            "to boot. If several labels match, the longest time applies."
        ),
    ] = ()
    silence: Annotated[
        float,
        Opt(
            "Seconds without a renewal of a kubelet's lease, after which the BMC is asked before the node is marked as "
            "not ready.",
            ge=11,
            le=3600,
        ),
    ] = 15.0
    proof_age: Annotated[
        float,
        Opt(
            "Seconds after a BMC was asked, in which its answer that the machine is off may be acted on; then it is "
            "asked again. Longer than a BMC takes to answer, and shorter than a machine takes to boot.",
            ge=0.5,
            le=60,
        ),
    ] = 5.0
    max_unhealthy: Annotated[
        str,
        Opt(
            "Maximum number or percentage (at least 1) of nodes that may be not ready or silent. Above it, the nodes "
            "are probably not the cause, and no remediation starts. Mode label counts nodes that were ready until "
            "storm_cooldown seconds ago. Nodes taken out of service on purpose do not count."
        ),
    ] = "30%"
    storm_cooldown: Annotated[
        float, Opt("Seconds after too many nodes were not ready, in which nothing is done.", ge=0, le=86400)
    ] = 120.0
    quorum: Annotated[
        tuple[str, ...],
        Opt(
            "Labels of nodes that need a majority, as KEY:VALUE,...: such as ceph-mon:enabled,example.com/etcd:. Of "
            "the nodes with the same label, one is powered off at a time, and only while all others are ready. Nodes "
            "of the control plane are always such a group."
        ),
    ] = ()
    max_power_offs: Annotated[
        int,
        Opt(
            "The most power-offs of one node's machine within an hour; if the node then fails again, an operator is "
            "called instead.",
            ge=1,
            le=1000,
        ),
    ] = 3
    reset_hung: Annotated[
        bool,
        Opt(
            "Power the machine of a failed node off and on also if none of its pods could run elsewhere. That heals a "
            "machine that hangs, and interrupts one that works and is only cut off."
        ),
    ] = False
    power_off: Annotated[bool, Opt("Power off the machine of a failed node; otherwise only observe its power.")] = True
    power_on: Annotated[bool, Opt("Power on a machine that was powered off, when its pods are free.")] = True
    inspect: Annotated[
        bool, Opt("Inspect a machine that was powered off, before it is powered on: what has changed in it?")
    ] = False
    dry_run: Annotated[bool, Opt("Only log what would be done.")] = False

    def problem(self) -> str:
        """Return which option is wrong, "" if none is."""
        if not CLUSTER_NAME.fullmatch(self.cluster):
            return (
                f"[failover] cluster is {self.cluster!r}; expected at most 63 lower-case letters, digits, '-' and '.'"
            )
        if not UNHEALTHY_LIMIT.fullmatch(self.max_unhealthy):
            return f"[failover] max_unhealthy is {self.max_unhealthy!r}; expected a number of nodes, or 1% to 100%"
        if self.mode == "label" and not (self.label_selector and self.label_namespaces):
            return (
                "[failover] mode is label, but label_selector or label_namespaces is not set; no pod would be selected"
            )
        for label in self.quorum:
            if not _LABEL.fullmatch(label):
                return f"[failover] quorum has the invalid label {label!r}; expected KEY:VALUE"
        for item in self.patience:
            try:
                patience_of(item)
            except ValueError:
                return f"[failover] patience has the invalid item {item!r}; expected KEY:VALUE:SECONDS, up to 86400"
        for url in self.api_servers:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                return f"[failover] api_servers has the invalid URL {url!r}; expected https://HOST:6443"
        return ""
