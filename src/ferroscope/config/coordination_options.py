"""Options of the coordination service: etcd, ZooKeeper, Redis or Kubernetes, beside the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec

from ferroscope.config.declaration import Opt

# The supported schemes: those whose faults were measured.
SCHEMES: Final = ("etcd3+http", "etcd3+https", "zookeeper", "redis")
# Options in the URL that name files: of TLS.
_FILES: Final = (
    "ca_cert", "cert_cert", "cert_key",  # etcd
    "ca", "certfile", "keyfile",  # ZooKeeper
    "ssl_ca_certs", "ssl_certfile", "ssl_keyfile",  # Redis
)  # fmt: skip
# Options in the URL that follow from session_timeout.
_OURS: Final = ("timeout", "membership_timeout", "lock_timeout", "socket_timeout", "socket_connect_timeout")


class CoordinationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[coordination]``: a service that notices sooner than the database that a leader is dead."""

    backend: Annotated[
        Literal["sql", "tooz", "kubernetes"],
        Opt(
            "sql: the database alone, no other service. tooz: also etcd, ZooKeeper or Redis (backend_url). kubernetes: "
            "Lease objects, too. The leases in the database decide in all cases."
        ),
    ] = "sql"
    backend_url: Annotated[
        str,
        Opt(
            "URL of the service, as Tooz expects it, with its TLS options: etcd3+http://HOST:2379, "
            "etcd3+https://HOST:2379?ca_cert=FILE, zookeeper://HOST:2181?hosts=HOST2:2181,HOST3:2181, "
            "redis://USER:PASSWORD@HOST:6379.",
            secret=True,
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        Opt("Kubeconfig file for processes outside Kubernetes; empty: this pod's service account."),
    ] = ""
    namespace: Annotated[
        str,
        Opt("Namespace of the Lease objects, of one installation only; empty: the namespace of the pod or kubeconfig."),
    ] = ""
    session_timeout: Annotated[
        int,
        Opt(
            "Seconds after which the service considers a process dead that it no longer hears from. ZooKeeper may "
            "allow no less than twice its tickTime.",
            ge=2,
            le=60,
        ),
    ] = 3


def problem(coordination: CoordinationSettings) -> str:
    """Return which option is missing or wrong, "" if none is. Never shows the URL, which may have a password."""
    url = coordination.backend_url
    if coordination.backend != "tooz" and url:
        return f"[coordination] backend_url is set, but backend is {coordination.backend}"
    if coordination.backend != "kubernetes" and (coordination.kubeconfig or coordination.namespace):
        return f"[coordination] kubeconfig or namespace is set, but backend is {coordination.backend}"
    if coordination.backend == "kubernetes":
        missing = coordination.kubeconfig and not Path(coordination.kubeconfig).is_file()
        return f"[coordination] kubeconfig: file {coordination.kubeconfig} not found" if missing else ""
    if coordination.backend == "sql":
        return ""
    if not url:
        return "[coordination] backend is tooz, but backend_url is not set"
    try:
        parts = urlsplit(url)
        has_backend = parts.scheme in SCHEMES and bool(parts.hostname)
        _ports(parts.netloc)
    except ValueError:
        return "[coordination] backend_url is not a valid URL"
    if not has_backend:
        return f"[coordination] backend_url must be {'://HOST, '.join(SCHEMES)}://HOST, with optional ports"
    if parts.scheme.startswith("etcd3") and (parts.username or parts.password):
        return "[coordination] backend_url has a user, but Tooz cannot log in to etcd; use client certificates"
    options = parse_qs(parts.query, keep_blank_values=True)
    for name in _OURS:
        if name in options:
            return f"[coordination] backend_url has the option {name}; set session_timeout instead"
    if "handler" in options:
        return "[coordination] backend_url has the option handler, which is not supported"
    for name in _FILES:
        for path in options.get(name, ()):
            if not Path(path).is_file():
                return f"[coordination] backend_url: file {path} (its option {name}) not found"
    return ""


def place(coordination: CoordinationSettings) -> str:
    """Return scheme and hosts of the URL, without credentials and options; or the configuration in use."""
    if coordination.backend == "kubernetes":
        return f"Kubernetes ({coordination.kubeconfig or 'service account'})"
    parts = urlsplit(coordination.backend_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def client_options(coordination: CoordinationSettings) -> dict[str, Any]:
    """Return the options for Tooz's driver that limit its sessions and calls, in seconds."""
    session = coordination.session_timeout
    call = -(-session // 2)
    if urlsplit(coordination.backend_url).scheme == "zookeeper":
        # The client's own pauses between its attempts to connect grow to an hour.
        return {"timeout": session, "connection_retry": {"max_tries": -1, "max_delay": call}}
    if urlsplit(coordination.backend_url).scheme == "redis":
        return {
            "timeout": session,
            "membership_timeout": session,
            "socket_timeout": call,
            "socket_connect_timeout": call,
        }
    return {"timeout": call, "membership_timeout": session}


def _ports(netloc: str) -> None:
    """Raise ``ValueError`` for an invalid port; there may be several hosts."""
    for host in netloc.rpartition("@")[2].split(","):
        urlsplit(f"//{host}").port  # noqa: B018  # it is checked when it is read
