"""What a seed stands for: the size and settings of the service, who does what, and which faults may come.

Every seed has its own mixture (some kinds of fault are off altogether), because faults that always come
together hide each other.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ferroscope.config.options import (
    BootSettings,
    DatabaseSettings,
    DriverSettings,
    InspectorSettings,
    LeaseSettings,
    Settings,
    WorkerSettings,
)
from ferroscope.contrib.boot.pxe_filter.leader import GUARD_SECONDS
from ferroscope.contrib.kubernetes.options import FailoverSettings
from ferroscope.core.model import DEFAULT, LeaseProfile
from tests.simulation.database.statements import Family
from tests.simulation.kernel import Rule
from tests.simulation.kubernetes import site, stories

FAULTS = (
    "crash", "host loss", "pause", "pause in transaction", "deaf heart", "pause under throttle", "partition",
    "bmc partition", "broken connections", "slow network", "power failure", "lost tail", "database restart",
    "terminate", "hang", "database clock", "wall clock", "bmc trouble",
)  # fmt: skip
# Inspections that nobody answers for are given up after so many seconds: longer than faults last.
TIMEOUT = 150.0
# The address of those who call back as machines of others.
INTRUDER = "198.51.100.66"
SCRIPT_URL = "http://192.0.2.1:6385/v1/boot.ipxe"


class SimulatedLease(LeaseSettings, frozen=True, kw_only=True):
    """``[lease]``, of which a scenario may choose all times, not only the time to live."""

    renew: float = DEFAULT.renew
    poll: float = DEFAULT.poll
    margin: float = DEFAULT.margin

    def numbers(self) -> LeaseProfile:
        if self.profile != "custom":
            return super().numbers()
        return LeaseProfile(ttl=self.ttl, renew=self.renew, poll=self.poll, margin=self.margin)


class Scenario(msgspec.Struct, kw_only=True):
    """``active`` seconds of faults and operators; then the faults stop and everything must come to rest."""

    seed: int
    family: Family = "postgresql"
    hosts: int = 3
    layout: tuple[tuple[str, ...], ...] = (("api", "worker", "periodic"),)  # the roles of each process of a host
    nodes: int = 4
    rounds: int = 2
    active: float = 60.0
    mean_between_faults: float = 6.0
    faults: tuple[str, ...] = FAULTS
    supervised: float = 0.7
    double_callbacks: float = 0.3
    slow_bmc: float = 0.01
    slowest_answer: float = 1.1  # of a slow BMC, as a part of the time-out
    clock_spread: float = 0.1
    database_rate: float = 1.0
    aborts: float = 0.1
    restarts: float = 0.0  # of inspections that wait for their machine
    commands: float = 0.1
    reapplies: float = 0.15
    double_starts: float = 0.3
    http_loss: float = 0.02
    dumb: float = 0.0
    poisoned: int = 0  # so many machines kill whoever commands their power
    intruders: bool = False  # call back as machines of others; machines then load the secret of their inspection
    ledgers: int = 0  # instead of the product's periodic tasks, each process campaigns for so many that only write
    ledger_period: float = 0.5
    site: site.Site | None = None  # a cluster of Kubernetes, whose failed nodes a controller looks after
    story: stories.Story | None = None  # what happens to the clusters, instead of mishaps at random
    blind: tuple[Rule, ...] = ()  # what is not looked at, so that what follows from it is seen
    queue_poll_seconds: float = 0.25
    power_poll_seconds: float = 0.5
    filter_guard_seconds: float = GUARD_SECONDS
    settings: Settings = Settings()

    @property
    def has_pxe_filters(self) -> bool:
        return any("pxe-filter" in roles for roles in self.layout)

    @property
    def has_timeouts(self) -> bool:
        """Whether somebody has to look for overdue inspections."""
        return not self.ledgers and any("periodic" in roles for roles in self.layout)

    def host_rate(self, rng: random.Random) -> float:
        return 1.0 + self.clock_spread * rng.uniform(-1.0, 1.0)


def from_seed(seed: int, **changes: Any) -> Scenario:
    """Return the scenario that ``seed`` means; ``changes`` override what it says.

    A change may also be to a section of the settings: ``worker={"reboot_throttle": 4.0}``.
    """
    rng = random.Random(f"{seed}/scenario")
    split: tuple[tuple[str, ...], ...] = (("api",), ("worker", "periodic"))
    whole: tuple[tuple[str, ...], ...] = (("api", "worker", "periodic"),)
    scenario = Scenario(
        seed=seed,
        family="postgresql" if rng.random() < 0.7 else "mariadb",
        hosts=rng.choice((2, 2, 3)),
        layout=split if rng.random() < 0.25 else whole,
        nodes=rng.randint(2, 5),
        rounds=rng.choice((1, 2, 2, 3)),
        active=rng.choice((30.0, 45.0, 70.0)),
        mean_between_faults=rng.choice((3.0, 6.0, 12.0)),
        faults=tuple(kind for kind in FAULTS if rng.random() < 0.5),
        supervised=rng.choice((0.3, 0.8)),
        double_callbacks=rng.choice((0.0, 0.3, 0.8)),
        slow_bmc=rng.choice((0.0, 0.01, 0.1)),
        clock_spread=rng.choice((0.0, 0.1, 0.1)),
        dumb=rng.choice((0.0, 0.0, 0.3)),
        database_rate=rng.uniform(0.98, 1.02),
        restarts=random.Random(f"{seed}/restarts").choice((0.0, 0.0, 0.0, 0.6)),
        queue_poll_seconds=rng.choice((0.25, 1.0, 1.0)),
        settings=_settings(rng, slots=random.Random(f"{seed}/slots").choice((1, 2, 64))),
    )
    intruders = changes.get("intruders", random.Random(f"{seed}/intruders").random() < 0.25)
    if intruders:
        secured = msgspec.structs.replace(scenario.settings, boot=BootSettings(machine_script_url=SCRIPT_URL))
        scenario = msgspec.structs.replace(scenario, intruders=True, settings=secured)
    for section in [name for name in changes if name in Settings.__struct_fields__]:
        present = getattr(scenario.settings, section)
        changed = {section: msgspec.structs.replace(present, **changes.pop(section))}
        scenario = msgspec.structs.replace(scenario, settings=msgspec.structs.replace(scenario.settings, **changed))
    return msgspec.structs.replace(scenario, **changes)


def elections(seed: int, **changes: Any) -> Scenario:
    """Return a scenario that is all elections: leaders that write, and nothing else, under faults without end."""
    faults = (
        "crash", "crash", "pause", "pause", "pause in transaction", "deaf heart", "partition", "host loss", "terminate",
        "broken connections", "slow network", "hang", "database restart", "lost tail", "power failure",
    )  # fmt: skip
    rng = random.Random(f"{seed}/elections")
    few = tuple(kind for kind in faults if rng.random() < 0.6) or faults
    chosen = {"ledgers": 4, "layout": (("periodic",),), "nodes": 0, "rounds": 0, "active": 300.0, "faults": few}
    return from_seed(seed, **{**chosen, "mean_between_faults": rng.choice((0.5, 1.0, 2.0)), **changes})


def takeovers(seed: int, **changes: Any) -> Scenario:
    """Return a scenario in which leases change hands as often as can be, their old leaders alive or just dead."""
    faults = (
        "pause", "pause", "pause", "pause", "pause in transaction", "pause in transaction", "deaf heart", "partition",
        "crash", "crash", "slow network", "broken connections", "lost tail",
    )  # fmt: skip
    rng = random.Random(f"{seed}/takeovers")
    chosen = {
        "faults": tuple(kind for kind in faults if rng.random() < 0.7) or faults,
        "ledgers": 24,
        "ledger_period": rng.choice((0.3, 0.7)),
        "mean_between_faults": rng.choice((0.1, 0.2, 0.4)),
        "hosts": rng.choice((2, 3)),
        "lease": {"profile": "custom", "ttl": 1.5, "renew": 0.6, "poll": 1.5, "margin": rng.choice((0.2, 0.3))},
    }
    return elections(seed, **{**chosen, **changes})


def pxe_filters(seed: int, **changes: Any) -> Scenario:
    """Return a scenario of two or three hosts with a PXE filter each, and nothing else.

    What makes leases meaningless is left out: a database that forgets what it has committed, or whose clock jumps.
    In most seeds candidates look when the lease that they know of ends, and not several times a second in between:
    that would be most of the work, and all that it finds is a lease that is held.
    """
    faults = (
        "crash", "crash", "pause", "pause", "pause in transaction", "deaf heart", "partition", "host loss", "terminate",
        "broken connections", "slow network", "database restart", "power failure", "slow firewall", "slow firewall",
    )  # fmt: skip
    rng = random.Random(f"{seed}/filters")
    lease = rng.choice(
        (
            *[{"profile": "default"}] * 3,
            {"profile": "fast"},
            *[{"profile": "custom", "ttl": 3.0, "renew": 0.5, "poll": 3.0, "margin": 0.5}] * 3,
            *[{"profile": "custom", "ttl": 6.0, "renew": 1.5, "poll": 6.0, "margin": 1.0}] * 4,
            *[{"profile": "custom", "ttl": 20.0, "renew": 7.0, "poll": 20.0, "margin": 3.0}] * 5,
        )
    )
    chosen = {
        "layout": (("pxe-filter",),),
        "hosts": rng.choice((2, 2, 3)),
        "nodes": 2,
        "rounds": 0,
        "active": 900.0,
        "supervised": 0.0,
        "faults": tuple(kind for kind in faults if rng.random() < 0.6) or faults,
        "mean_between_faults": rng.choice((3.0, 10.0, 30.0, 100.0)),
        "lease": lease,
        "worker": {"member_ttl": 60.0},
        "pxe_filter": {
            "interfaces": ("eth0",),
            "sync_period": rng.choice((5.0, 15.0, 30.0)),
            "channels": rng.random() < 0.8,
        },
    }
    return from_seed(seed, **{**chosen, **changes})


def failover(seed: int, **changes: Any) -> Scenario:
    """Return a scenario of a cluster of Kubernetes, the controllers of its failed nodes, and nothing else.

    As for PXE filters, the database forgets nothing. A change may also be to the site: ``site={"workers": 4}``.
    """
    faults = (
        "crash", "crash", "pause", "pause", "pause in transaction", "deaf heart", "partition", "host loss", "terminate",
        "broken connections", "slow network", "database restart", "bmc partition",
    )  # fmt: skip
    rng = random.Random(f"{seed}/failover")
    calm = rng.random() < 0.3
    chosen = {
        "layout": (("failover",),),
        "hosts": rng.choice((2, 2, 3)),
        "nodes": 0,
        "rounds": 0,
        "active": rng.choice((200.0, 300.0, 400.0)),
        "supervised": 0.0,
        "faults": () if calm else tuple(kind for kind in faults if rng.random() < 0.5) or faults,
        "mean_between_faults": rng.choice((10.0, 20.0, 60.0)),
        "clock_spread": rng.choice((0.0, 0.05)),
        "lease": {"profile": "custom", "ttl": 6.0, "renew": 1.5, "poll": 6.0, "margin": 1.0},
        "worker": {"member_ttl": 60.0, "reboot_throttle": 0.0},
    }
    where = site.from_seed(seed, **changes.pop("site", {}))
    servers = ("https://api-1", "https://api-2") * where.api_servers
    found = from_seed(seed, **{**chosen, "site": where, "intruders": False, **changes})
    parts = {"failover": FailoverSettings(cluster="c", api_servers=servers)}
    return msgspec.structs.replace(found, settings=msgspec.structs.replace(found.settings, parts=parts))


def no_harm(seed: int, **changes: Any) -> Scenario:
    """Return a scenario that tells a story of one or two clusters: see ``kubernetes.stories``.

    A change may also be to the story: ``story={"mistake": "swapped bmcs"}``.
    """
    story = stories.from_seed(seed, **changes.pop("story", {}))
    rng = random.Random(f"{seed}/no harm")
    calm = rng.random() < 0.7 or story.trouble in ("API server away", "clock back", "clock forward")
    where = {
        "workers": 9,
        "control_planes": 3 if story.trouble == "control plane off" else 1,
        "spares": 1,
        "replicas": 8,
        "kinds": (1.0, 0.0, 0.0, 0.0),
        "inspected": 1.0,
        "wrong": 0.0,
        "mishaps": (),
        "api_servers": False,
    }
    chosen = {
        "story": story,
        "hosts": 4 if story.across else 2,
        "active": 6000.0,  # at most: it ends when all is judged
        "faults": () if calm else ("crash", "terminate", "pause", "database restart"),
        "mean_between_faults": 50.0,
        "site": where | changes.pop("site", {}),
    }
    return failover(seed, **{**chosen, **changes})


def _settings(rng: random.Random, slots: int) -> Settings:
    return Settings(
        database=DatabaseSettings(
            connection="postgresql://simulated",
            statement_timeout=rng.choice((2.0, 5.0, 5.0, 15.0)),
        ),
        worker=WorkerSettings(
            threads=rng.choice((1, 2, 2)),
            bmc_slots=slots,
            member_ttl=rng.choice((3.0, 6.0, 6.0)),
            interrupted="error" if rng.random() < 0.15 else "rerun",
            reboot_throttle=rng.choice((0.0, 0.0, 2.0, 8.0)),
        ),
        lease=SimulatedLease(profile="fast" if rng.random() < 0.25 else "default"),
        inspector=InspectorSettings(
            timeout=rng.choice((TIMEOUT, TIMEOUT, 12.0)),
            timeout_period=rng.choice((2.0, 5.0)),
            retention=rng.choice((0.0, 0.0, 10.0)),
            retention_number=0,  # its ranking is one for real databases: the conformance suite's
            retention_period=2.0,
        ),
        drivers=_drivers(rng.choice((3.0, 10.0))),
    )


def _drivers(timeout: float) -> DriverSettings:
    """Return settings for BMCs that answer a call at once or not at all: no progress extends it."""
    return DriverSettings(enabled=("sim",), command_timeout=timeout, inventory_timeout=timeout, power_timeout=20.0)
