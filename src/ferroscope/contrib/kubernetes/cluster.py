"""Connects to the cluster: the HTTP client from a kubeconfig, and the first check of the API server's version and of
our rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import structlog

from ferroscope.config.errors import SetupError, extra
from ferroscope.contrib.kubernetes.api import KubernetesClient, KubernetesError, Right

ROLE: Final = "failover"

_log = structlog.get_logger(__name__)


def http_client(kubeconfig: str, context: str) -> Any:
    """Return the HTTP client of the cluster that the configuration names; it sends nothing yet.

    Without a kubeconfig: that of the pod's service account, or the usual one. ``SetupError``.
    """
    try:
        from lightkube import KubeConfig
        from lightkube.config import client_adapter
        from lightkube.core.exceptions import ConfigError
    except ImportError as exc:
        raise SetupError(
            f"the role {ROLE} needs the Python package {exc.name}, which is not installed",
            extra("kubernetes"),
        ) from exc
    from yaml import YAMLError

    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        selected = None if context and context not in config.contexts else config.get(context_name=context or None)
        http = None if selected is None else client_adapter.Client(selected, client_adapter.ConnectionParams())
    except (ConfigError, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        where = kubeconfig or "the default kubeconfig"
        why = " ".join(str(exc).split()) or type(exc).__name__  # YAML's errors have several lines
        raise SetupError(f"{where} cannot be used: {why}", "correct [failover] kubeconfig") from exc
    if http is None:
        raise SetupError(f"the kubeconfig has no context {context!r}", "correct [failover] context")
    return http


def check(kube: KubernetesClient, rights: Iterable[Right], *, oldest: tuple[int, int]) -> tuple[int, int]:
    """Check version and rights, and return the version; ``SetupError`` names the missing rights and their rules."""
    try:
        version = kube.version()
        if (0, 0) < version < oldest:
            needed = ".".join(map(str, oldest))
            raise SetupError(f"Kubernetes {version[0]}.{version[1]} is too old: {needed} or newer is needed")
        missing = kube.missing(rights)
    except KubernetesError as exc:
        raise unusable(exc) from exc
    if missing:
        forbidden = ", ".join(dict.fromkeys(f"{right.verb} {right.resource}{_where(right)}" for right in missing))
        roles = {"a Role there" if right.namespace else "the ClusterRole" for right in missing}
        rules = ", ".join(dict.fromkeys(right.rule for right in missing))
        raise SetupError(
            f"Kubernetes forbids to {forbidden}", f"add to {' and '.join(sorted(roles))} of the controller: {rules}"
        )
    return version


def _where(right: Right) -> str:
    return f" in namespace {right.namespace}" if right.namespace else ""


def unusable(exc: KubernetesError) -> SetupError:
    """Return the error of a cluster that cannot be used."""
    if exc.status == 401:
        return SetupError("Kubernetes rejected the credentials", "correct [failover] kubeconfig")
    return SetupError(f"cannot use the Kubernetes API: {exc}", "correct [failover] kubeconfig")
