"""What the clients of ``incumbents`` are told to do, and how they do it with each service: data, and no calls.

Ironic and this service have the Bare Metal API, ironic-inspector has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

BARE_METAL: Final = "bare metal"
INTROSPECTION: Final = "introspection"
# Bytes of a callback.
LEAST: Final = 31_000
MOST: Final = 41_000
# Seconds between two looks: the first, how fast they grow, the longest. A slow service is not asked much more often
# than a quick one.
_LOOK: Final = 0.01
_LONGER: Final = 1.5
_LONGEST: Final = 0.3


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How an API is asked for an inspection; ``{}`` is the node's UUID."""

    method: str
    start: str
    body: dict[str, str] | None
    look: str
    field: str
    waiting: str
    finished: str
    failed: str
    callback: str
    data: str


# Field -> in the Bare Metal API, in the Introspection API.
_SPELLED: Final = {
    "method": ("PUT", "POST"),
    "start": ("/v1/nodes/{}/states/provision", "/v1/introspection/{}"),
    "body": ({"target": "inspect"}, None),
    "look": ("/v1/nodes/{}?fields=provision_state", "/v1/introspection/{}"),
    "field": ("provision_state", "state"),
    "waiting": ("inspect wait", "waiting"),
    "finished": ("manageable", "finished"),
    "failed": ("inspect failed", "error"),
    "callback": ("/v1/continue_inspection", "/v1/continue"),
    "data": ("/v1/nodes/{}/inventory", "/v1/introspection/{}/data"),
}
DIALECTS: Final = {
    api: msgspec.convert({field: both[at] for field, both in _SPELLED.items()}, Dialect)
    for at, api in enumerate((BARE_METAL, INTROSPECTION))
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Told in its first line. ``registry`` is the Bare Metal API that has the nodes; ``fields`` are given to each."""

    dialect: str
    url: str
    registry: str
    nodes: int
    fields: dict[str, str] = {}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """``callbacks``: the seconds until each was answered; ``looks`` and ``repeated``: numbers of calls.

    ``wrong``: what went wrong, by machine.
    """

    inspections: int
    seconds: float
    callbacks: list[float]
    looks: int
    repeated: int
    wrong: dict[str, str]


def size(number: int) -> int:
    """Return the bytes of the callback of machine ``number``: 31 to 41 KB."""
    return LEAST + number * 7_919 % (MOST - LEAST + 1)


def pauses() -> Iterator[float]:
    """Return the seconds before each look."""
    pause = _LOOK
    while True:
        yield pause
        pause = min(pause * _LONGER, _LONGEST)
