"""Kubernetes: the controller of failed nodes (the role failover), and Lease objects as hints on who is alive."""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

FAILOVER: Final = Command(
    "ferroscope.contrib.kubernetes.failover_command:failover",
    "Fail over the pods of dead Kubernetes nodes; show the plan.",
    after="lease",
    is_service=True,
)
