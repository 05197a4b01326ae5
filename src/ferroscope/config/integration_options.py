"""Options of what this service works with: an attached Ironic, and a Kubernetes cluster with nodes that fail."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.declaration import Opt

# What keystoneauth's plugins read; any other option of a plugin is given in ``auth_options``.
PLUGIN_OPTIONS: Final = (
    "auth_url",
    "username",
    "password",
    "user_domain_name",
    "project_name",
    "project_domain_name",
    "system_scope",
    "application_credential_id",
    "application_credential_secret",
)
_OF_USERS: Final = ("password", "v3password")
_NEEDED: Final = dict.fromkeys(_OF_USERS, ("auth_url", "username", "password")) | {
    "v3applicationcredential": ("auth_url", "application_credential_id", "application_credential_secret"),
    "http_basic": ("username", "password"),
}


class IronicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[ironic]``: the Ironic that manages the nodes, with ``[registry] backend = ironic``."""

    auth_type: Annotated[
        str,
        Opt(
            "How this service authenticates: none, http_basic, password, v3applicationcredential, or any other plugin "
            "of keystoneauth. Empty: as the cloud says."
        ),
    ] = ""
    cloud: Annotated[str, Opt("Name of a cloud in clouds.yaml, instead of auth_type and the options below.")] = ""
    endpoint_override: Annotated[
        str,
        Opt("URL of Ironic, instead of the one in the service catalog; required with auth_type none or http_basic."),
    ] = ""
    auth_url: Annotated[str, Opt("URL of Keystone, such as http://192.0.2.5:5000/v3.")] = ""
    username: Annotated[str, Opt("This service's user.")] = ""
    password: Annotated[str, Opt("Its password.", secret=True)] = ""
    user_domain_name: Annotated[str, Opt("The domain of the user, such as Default.")] = ""
    project_name: Annotated[str, Opt("The project of the user, such as service.")] = ""
    project_domain_name: Annotated[str, Opt("The domain of the project, such as Default.")] = ""
    system_scope: Annotated[str, Opt("all: a token for the whole system, instead of a project.")] = ""
    application_credential_id: Annotated[str, Opt("ID of an application credential, instead of user and project.")] = ""
    application_credential_secret: Annotated[str, Opt("Its secret.", secret=True)] = ""
    auth_options: Annotated[
        dict[str, str],
        Opt("Further options of the plugin auth_type, such as identity_provider:idp,protocol:openid.", secret=True),
    ] = {}
    region_name: Annotated[str, Opt("Region in the service catalog; empty: any.")] = ""
    service_type: Annotated[str, Opt("Service type in the service catalog.")] = "baremetal"
    valid_interfaces: Annotated[tuple[str, ...], Opt("Interfaces in the service catalog, in order of preference.")] = (
        "internal",
        "public",
    )
    cafile: Annotated[str, Opt("File with CA certificates for Keystone and Ironic; empty: the system's.")] = ""
    certfile: Annotated[str, Opt("File with a client certificate.")] = ""
    keyfile: Annotated[str, Opt("File with its private key; empty: it is in certfile.")] = ""
    insecure: Annotated[bool, Opt("Do not verify certificates. For tests only.")] = False
    timeout: Annotated[float, Opt("Timeout of one try of a request, in seconds.", ge=0.1, le=300)] = 30.0
    max_retries: Annotated[
        int, Opt("Retries of a request while Ironic has locked the node or does not answer; after that it waits.", ge=0)
    ] = 5
    retry_interval: Annotated[float, Opt("Seconds between these retries.", ge=0, le=60)] = 1.0
    outage_interval: Annotated[
        float, Opt("Seconds until requests that wait for Ironic are tried again.", ge=0.1, le=600)
    ] = 5.0
    lock_timeout: Annotated[
        float, Opt("Seconds that a request waits for a node that Ironic has locked, before it counts as failed.", ge=0)
    ] = 600.0


def problem(ironic: IronicSettings) -> str:
    """Return which option is missing or contradicts another one, "" if none does."""
    given = [name for name in PLUGIN_OPTIONS if getattr(ironic, name)]
    if ironic.cloud:
        wrong = [name for name in ("auth_type", *given) if getattr(ironic, name)]
        return f"[ironic] cloud and {wrong[0]} are mutually exclusive" if wrong else ""
    if not ironic.auth_type:
        return "[ironic] auth_type is not set"
    if ironic.auth_type in ("none", "http_basic") and not ironic.endpoint_override:
        return f"[ironic] endpoint_override is not set, which auth_type {ironic.auth_type} requires"
    if ironic.auth_type == "none" and given:
        return f"[ironic] {given[0]} has no meaning with auth_type none"
    needed = [name for name in _NEEDED.get(ironic.auth_type, ()) if not getattr(ironic, name)]
    if needed and not ironic.auth_options:
        return f"[ironic] {needed[0]} is not set"
    if ironic.auth_type in _OF_USERS and not (ironic.project_name or ironic.system_scope or ironic.auth_options):
        return "[ironic] project_name is not set, and neither is system_scope"
    if ironic.keyfile and not ironic.certfile:
        return "[ironic] certfile is not set, but keyfile is"
    url = ironic.endpoint_override
    if url and not url.startswith(("http://", "https://")):
        return f'[ironic] endpoint_override has the invalid URL "{url}": expected http:// or https://'
    return ""


_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_LIMIT: Final = re.compile(r"[1-9][0-9]{0,5}|[0-9]{1,2}(\.[0-9]+)?%|100%")


class FailoverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[failover]``: frees the pods and volumes of a failed Kubernetes node, with proof that its machine is off."""

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
            "The most nodes that may be not ready or silent, as a number or a percentage (at least 1): with more, the "
            "cause is hardly the nodes, and nothing is begun. Mode label counts those that were ready until "
            "storm_cooldown seconds ago."
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
        if not _NAME.fullmatch(self.cluster):
            return (
                f"[failover] cluster is {self.cluster!r}; expected at most 63 lower-case letters, digits, '-' and '.'"
            )
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
