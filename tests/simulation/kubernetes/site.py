"""What a seed means for the cluster: its size, what runs there, what is known of machines, and what may go wrong."""

from __future__ import annotations

import random
from typing import Any

import msgspec

MISHAPS = (
    "kubelet hangs", "kubelet hangs", "partition", "partition", "storm", "machine dies", "machine crashes", "unwell",
    "bmc silent", "bmc unknown", "bmc lies", "bmc deaf", "bmc slow", "wrong annotation", "hardware replaced",
    "control plane dies", "node deleted", "switched by hand", "api server down", "api server away", "cordon",
)  # fmt: skip
# What BMCs, operators and the API server do counts while a node has failed: these let one fail, and go wrong after it.
FAILURES = ("kubelet hangs", "partition", "machine dies", "machine crashes", "storm", "control plane dies")


class Site(msgspec.Struct, kw_only=True, frozen=True):
    """``kinds``: how often a StatefulSet's pod is plain, has a finalizer, is pinned to its host, has a local volume.

    ``inspected``: how many of the machines were; ``wrong``: how many nodes name another machine from the beginning,
    by an annotation or a provider ID. ``mean`` seconds are between two mishaps; ``minor`` version of Kubernetes.
    """

    workers: int = 4
    control_planes: int = 1
    spares: int = 1
    replicas: int = 3
    kinds: tuple[float, float, float, float] = (5.0, 1.0, 1.0, 1.0)
    inspected: float = 0.7
    wrong: float = 0.1
    mishaps: tuple[str, ...] = MISHAPS
    mean: float = 60.0
    minor: int = 20
    api_servers: bool = False


def from_seed(seed: int, **changes: Any) -> Site:
    """Return the site that ``seed`` means; ``changes`` override what it says."""
    rng = random.Random(f"{seed}/site")
    chosen = tuple(kind for kind in MISHAPS if rng.random() < 0.6)
    if not set(chosen) & set(FAILURES):
        chosen = (*chosen, rng.choice(FAILURES))
    site = Site(
        workers=rng.choice((3, 4, 4, 6, 9)),
        control_planes=rng.choice((1, 3, 3)),
        replicas=rng.choice((2, 3, 4)),
        kinds=rng.choice(((1.0, 0.0, 0.0, 0.0), (4.0, 2.0, 0.0, 0.0), (4.0, 0.0, 1.0, 1.0), (4.0, 1.0, 1.0, 1.0))),
        inspected=rng.choice((1.0, 0.7, 0.4)),
        wrong=rng.choice((0.0, 0.0, 0.2, 0.4)),
        mishaps=chosen,
        mean=rng.choice((25.0, 50.0, 90.0)),
        minor=rng.choice((20, 27, 30)),
        api_servers=rng.random() < 0.3,
    )
    return msgspec.structs.replace(site, **changes)
