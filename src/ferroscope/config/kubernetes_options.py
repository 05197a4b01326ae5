"""Options of the controllers for Kubernetes: of failed nodes, and of Machine objects."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.declaration import Opt

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_LIMIT: Final = re.compile(r"[1-9][0-9]{0,5}|[0-9]{1,2}(\.[0-9]+)?%|100%")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that a controller works for."""

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

    def misnamed(self, section: str, option: str, *names: str) -> str:
        """Return that one of these values of the option is not a valid name, "" if all are."""
        for name in names:
            if not _NAME.fullmatch(name):
                return f"[{section}] {option} is {name!r}; expected at most 63 lower-case letters, digits, '-' and '.'"
        return ""


class FailoverSettings(ClusterSettings, frozen=True, kw_only=True):
    """``[failover]``: frees the pods and volumes of a failed Kubernetes node, with proof that its machine is off."""

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
    dwell: Annotated[
        float, Opt("Seconds for which a node must have failed before its machine is powered off.", ge=0, le=3600)
    ] = 20.0
    dwell_reporting: Annotated[
        float,
        Opt("The same for a node whose kubelet itself reports that it is not ready, in seconds.", ge=0, le=86400),
    ] = 300.0
    silence: Annotated[
        float,
        Opt(
            "Seconds without a renewal of a kubelet's lease, after which the BMC is asked before the node is marked as "
            "not ready.",
            ge=11,
            le=3600,
        ),
    ] = 15.0
    max_unhealthy: Annotated[
        str,
        Opt(
            "The most nodes that may be not ready, as a number or a percentage (at least 1): with more, the cause is "
            "hardly the nodes, and nothing is done."
        ),
    ] = "30%"
    storm_cooldown: Annotated[
        float, Opt("Seconds after too many nodes were not ready, in which nothing is done.", ge=0, le=86400)
    ] = 120.0
    power_off: Annotated[bool, Opt("Power off the machine of a failed node; otherwise only observe its power.")] = True
    power_on: Annotated[bool, Opt("Power on a machine that was powered off, when its pods are free.")] = True
    inspect: Annotated[
        bool, Opt("Inspect a machine that was powered off, before it is powered on: what has changed in it?")
    ] = False
    resync: Annotated[float, Opt("Seconds between two passes over all nodes.", ge=1, le=300)] = 10.0
    dry_run: Annotated[bool, Opt("Only log what would be done.")] = False

    def problem(self) -> str:
        """Return which option is wrong, "" if none is."""
        if wrong := self.misnamed("failover", "cluster", self.cluster):
            return wrong
        if not _LIMIT.fullmatch(self.max_unhealthy):
            return f"[failover] max_unhealthy is {self.max_unhealthy!r}; expected a number of nodes, or 1% to 100%"
        if self.mode == "label" and not (self.label_selector and self.label_namespaces):
            return (
                "[failover] mode is label, but label_selector or label_namespaces is not set; no pod would be selected"
            )
        for url in self.api_servers:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                return f"[failover] api_servers has the invalid URL {url!r}; expected https://HOST:6443"
        return ""


class MachinesSettings(ClusterSettings, frozen=True, kw_only=True):
    """``[machines]``: keeps Machine objects of Kubernetes and nodes in step."""

    namespaces: Annotated[
        tuple[str, ...], Opt("Namespaces whose Machines are managed; empty: all, which needs a ClusterRole.")
    ] = ()
    adopt_nodes: Annotated[
        bool,
        Opt(
            "Whether spec.uuid of a Machine may name a node that exists. Everybody who may create Machines can then "
            "take over, change and delete any node."
        ),
    ] = False
    observe_namespace: Annotated[
        str,
        Opt(
            "Namespace in which nodes that no Machine describes appear as Machines, which are never written to the "
            "node. Empty: they do not appear."
        ),
    ] = ""
    hardware_data: Annotated[
        bool, Opt("Write a HardwareData object of Metal3 for each Machine after its inspection.")
    ] = False
    poll: Annotated[float, Opt("Seconds between two looks for changed nodes.", ge=0.2, le=60)] = 1.0
    resync: Annotated[float, Opt("Seconds between two passes over all Machines and their Secrets.", ge=5, le=3600)] = (
        60.0
    )

    def problem(self) -> str:
        """Return which option is wrong, "" if none is."""
        observed = (self.observe_namespace,) if self.observe_namespace else ()
        wrong = (
            self.misnamed("machines", "cluster", self.cluster)
            or self.misnamed("machines", "namespaces", *self.namespaces)
            or self.misnamed("machines", "observe_namespace", *observed)
        )
        if wrong:
            return wrong
        if self.observe_namespace and self.namespaces and self.observe_namespace not in self.namespaces:
            return f"[machines] observe_namespace is {self.observe_namespace!r}, which is not one of namespaces"
        return ""
