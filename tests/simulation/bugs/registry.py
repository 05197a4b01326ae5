"""What a planted bug is, and where they are looked for.

``bug`` registers one; focuses are changes to a seed's scenario that bugs have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec

from tests.simulation.kernel import Rule
from tests.simulation.scenario import Scenario, elections, failover, from_seed, no_harm, pxe_filters, takeovers

KINDS: dict[str, Callable[..., Scenario]] = {
    "all": from_seed,
    "elections": elections,
    "takeovers": takeovers,
    "filters": pxe_filters,
    "failover": failover,
    "no-harm": no_harm,
}
Patch = Callable[[], AbstractContextManager[object]]


class Bug(msgspec.Struct, frozen=True):
    """``what`` says it in a sentence, ``rule`` is what finds it; ``focus``: changes to each seed's scenario, if any."""

    name: str
    what: str
    patch: Patch
    rule: Rule
    seeds: int
    kind: str
    focus: Mapping[str, Any]

    def scenario(self, seed: int) -> Scenario:
        """Return what this seed means where the bug is looked for."""
        return KINDS[self.kind](seed, **self.focus)


BUGS: dict[str, Bug] = {}


def bug(
    name: str, what: str, *, rule: Rule, seeds: int, kind: str = "all", **focus: Any
) -> Callable[[Callable[[], Iterator[Any]]], Patch]:
    """Register a generator of ``(where, name, replacement)`` as a bug."""

    def register(replacements: Callable[[], Iterator[Any]]) -> Patch:
        @contextmanager
        def patch() -> Iterator[None]:
            with ExitStack() as stack:
                for where, attribute, replacement in replacements():
                    if isinstance(where, dict):
                        stack.enter_context(mock.patch.dict(where, {attribute: replacement}))
                    else:
                        stack.enter_context(mock.patch.object(where, attribute, replacement))
                yield

        BUGS[name] = Bug(name, what, patch, rule, seeds, kind, focus)
        return patch

    return register


# Heartbeats and renewals do not arrive, and processes freeze within transactions.
FROZEN: dict[str, Any] = {
    "faults": ("pause in transaction", "pause in transaction", "deaf heart", "deaf heart", "pause"),
    "mean_between_faults": 2.0,
}
# Only what makes a worker wake up in a transaction of a claim that somebody else has got since.
OVERTAKEN: dict[str, Any] = {
    "faults": ("pause in transaction", "pause in transaction", "deaf heart", "deaf heart"),
    "mean_between_faults": 1.0,
    "active": 70.0,
    "rounds": 4,
    "nodes": 6,
    "hosts": 3,
    "worker": {"member_ttl": 3.0, "threads": 2, "interrupted": "rerun"},
}
# The same of leases that change hands all the time.
DEPOSED: dict[str, Any] = {
    "kind": "takeovers",
    "faults": ("pause in transaction", "pause in transaction", "deaf heart", "pause"),
    "active": 30.0,
}


def without(statement: Any, condition: Any) -> Any:
    """Return the statement with ``condition`` as its only one."""
    copy = statement._generate()
    copy._where_criteria = (condition,)
    return copy
