"""What a seed means as a story: which node fails how, what is wrong with the entries of machines, who forbids what.

A story is told by ``plot``. All that it says is chosen here, so that a reader of a failed seed sees what was tried.
"""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from tests.simulation.kubernetes.places import SPELLINGS

# How a node fails, and stays so. The machine runs on in the first two, and its BMC answers in all but the last.
FAILURES: Final = ("partition", "kubelet hangs", "machine dies", "machine crashes", "machine dies with its BMC")
RUNS_ON: Final = FAILURES[:2]
# What operators do against a power-off, and when.
PROHIBITIONS: Final = (
    "disable_power_off", "power_off = false", "paused", "maintenance", "cordoned", "inspection", "all paused",
)  # fmt: skip
MOMENTS: Final = ("before the failure", "while silent", "in the dwell time", "after a refused command", "while off")
_SHARED, _NO, _REST = {"mistake": "shared bmc"}, {"moment": "after a refused command"}, dict[str, Any]()
# What each seed is about: with a hundred of them, each comes four times, but of the others one at a time.
_SUBJECTS: Final[tuple[dict[str, Any], ...]] = (
    _SHARED,
    _NO,
    {"mistake": "unmeasured annotation", "across": True},
    {"trouble": "claim unreadable"},
    {"trouble": "node deleted"},
    {"mistake": "swapped bmcs"},
    {"trouble": "in repair"},
    _NO,
    {"trouble": "clock back"},
    {"trouble": "stuck off"},
    _SHARED,
    {"mistake": "placeholders"},
    {"moment": "in the dwell time"},
    {"trouble": "pods unreadable"},
    {"trouble": "hardware replaced"},
    {"trouble": "confirmed again"},
    _SHARED,
    _NO,
    {"trouble": "clock forward"},
    {"trouble": "API server away"},
    {"trouble": "confirmed storm"},
    {"trouble": "control plane off"},
    {"moment": "while off"},
    _REST,
    _REST,
)
_OTHERS: Final[tuple[dict[str, Any], ...]] = (
    {"trouble": "flapping"},
    {"trouble": "API server slow"},
    {"trouble": "quorum"},
    {"trouble": "nowhere to go"},
    {"mistake": "wrong annotation"},
    {"moment": "before the failure"},
    {"mistake": "unmeasured annotation"},
    {"moment": "while silent"},
    {"trouble": "inspection never ends"},
    {"trouble": "volume unreadable"},
)
# Stories in which the machine has to be on until it is powered off.
_OFF_BY_US: Final = frozenset(
    {
        "node deleted", "hardware replaced", "API server away", "control plane off", "clock back", "clock forward",
        "quorum", "inspection never ends", "API server slow",
    }
)  # fmt: skip


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """``failure`` befalls the victim, and a moment later the bystander, whose case is plain, if there is one.

    ``mistake``: what is wrong with the victim's entry or annotation, ``spelling``: how. ``across``: there is a second
    cluster, and the mistake concerns a machine of that. ``prohibition`` comes at the ``moment``, and is taken back
    after ``lifted`` seconds, unless that is 0. ``trouble``: what else goes wrong.
    """

    failure: str = "partition"
    bystander: bool = False
    mistake: str = ""
    spelling: str = ""
    across: bool = False
    prohibition: str = ""
    moment: str = ""
    lifted: float = 0.0
    trouble: str = ""

    def __str__(self) -> str:
        parts = [f"{self.failure}{', and of a bystander' * self.bystander}"]
        if self.mistake:
            parts.append(f"{self.mistake}{f' ({self.spelling})' if self.spelling else ''}{' across' * self.across}")
        if self.prohibition:
            parts.append(f"{self.prohibition} {self.moment}{f', for {self.lifted:.0f} s' if self.lifted else ''}")
        return "; ".join([*parts, self.trouble] if self.trouble else parts)


def from_seed(seed: int, **changes: Any) -> Story:
    """Return the story that ``seed`` means, or one that is about ``changes``."""
    rng = random.Random(f"{seed}/story")
    turn, number = divmod(seed - 1, len(_SUBJECTS))
    subject = changes or _SUBJECTS[number] or _OTHERS[_nth(turn, number) % len(_OTHERS)]
    chosen: dict[str, Any] = {"failure": rng.choice(FAILURES), "bystander": rng.random() < 0.5}
    if subject.get("mistake") == "shared bmc":
        chosen["spelling"] = list(SPELLINGS)[_nth(turn, number) % len(SPELLINGS)]
    if subject.get("mistake"):
        chosen["across"] = rng.random() < 0.3
    if subject.get("moment"):
        nth = _nth(turn, number) + 3 * number * (subject is not _NO)
        chosen |= {
            "prohibition": PROHIBITIONS[nth % len(PROHIBITIONS)],
            "lifted": rng.choice((0.0, 0.0, rng.uniform(60.0, 300.0))),
            "failure": rng.choice(RUNS_ON),
            "bystander": False,
        }
    if trouble := subject.get("trouble", ""):
        chosen["bystander"] = trouble.endswith("unreadable")
    if trouble in ("stuck off", "confirmed again", "flapping"):
        chosen["failure"] = "partition"
    elif trouble in _OFF_BY_US:
        chosen["failure"] = rng.choice(RUNS_ON)
    return msgspec.structs.replace(Story(**chosen), **subject)


def _nth(turn: int, number: int) -> int:
    """Return how many subjects like this one came in all turns before."""
    alike = [place for place, one in enumerate(_SUBJECTS) if one is _SUBJECTS[number]]
    return turn * len(alike) + alike.index(number)
