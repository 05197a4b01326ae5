"""What the controllers for Kubernetes share: the HTTP client from a kubeconfig, and the check of version and rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ferroscope.remote.kubernetes import KubernetesClient, KubernetesError, Right
from ferroscope.runtime.system import SetupError


def http_client(kubeconfig: str, context: str, *, section: str) -> Any:
    """Return the HTTP client of the cluster that ``section`` of the configuration names; it sends nothing yet.

    Without a kubeconfig: that of the pod's service account, or the usual one. ``SetupError``.
    """
    try:
        from lightkube import KubeConfig
        from lightkube.config import client_adapter
        from lightkube.core.exceptions import ConfigError
    except ImportError as exc:
        raise SetupError(
            f"the role {section} needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [kubernetes], for example: pip install '.[kubernetes]'",
        ) from exc
    from yaml import YAMLError

    try:
        found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        one = found.get(context_name=context) if context else found.get()
        http = None if one is None else client_adapter.Client(one, client_adapter.ConnectionParams())
    except (ConfigError, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        where = kubeconfig or "the default kubeconfig"
        raise SetupError(
            f"{where} cannot be used: {exc or type(exc).__name__}", f"correct [{section}] kubeconfig"
        ) from exc
    if http is None:
        raise SetupError("the kubeconfig has no such context", f"correct [{section}] context")
    return http


def check(kube: KubernetesClient, rights: Iterable[Right], *, oldest: tuple[int, int], section: str) -> tuple[int, int]:
    """Check version and rights, and return the version; ``SetupError`` names the missing rights and their rules."""
    try:
        version = kube.version()
        if (0, 0) < version < oldest:
            needed = ".".join(map(str, oldest))
            raise SetupError(f"Kubernetes {version[0]}.{version[1]} is too old: {needed} or newer is needed")
        missing = kube.missing(rights)
    except KubernetesError as exc:
        raise unusable(exc, section) from exc
    if missing:
        forbidden = ", ".join(dict.fromkeys(f"{one.verb} {one.resource}{_where(one)}" for one in missing))
        roles = {"a Role there" if one.namespace else "the ClusterRole" for one in missing}
        rules = ", ".join(dict.fromkeys(one.rule for one in missing))
        raise SetupError(
            f"Kubernetes forbids to {forbidden}", f"add to {' and '.join(sorted(roles))} of the controller: {rules}"
        )
    return version


def _where(right: Right) -> str:
    return f" in namespace {right.namespace}" if right.namespace else ""


def unusable(exc: KubernetesError, section: str) -> SetupError:
    """Return the error of a cluster that cannot be used."""
    if exc.status == 401:
        return SetupError("Kubernetes rejected the credentials", f"correct [{section}] kubeconfig")
    return SetupError(f"cannot use the Kubernetes API: {exc}", f"correct [{section}] kubeconfig")
