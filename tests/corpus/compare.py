"""Where two outcomes of a case differ, path by path, and which explanation covers a difference. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.corpus import Case, Outcome

EXPLANATIONS = Path(__file__).parent / "differences.yaml"
NOTHING = "nothing"


class Difference(msgspec.Struct, frozen=True):
    """At ``path`` (``plugin_data.parsed_lldp.eth0.switch_mtu``) of this case it is ``ours`` here, ``theirs`` there."""

    case: str
    path: str
    ours: Any
    theirs: Any


class Explanation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a difference is wanted. ``cases`` and ``paths`` are patterns with ``*``; the rest is words."""

    name: str
    cases: list[str]
    paths: list[str]
    theirs: str
    ours: str
    why: str

    def covers(self, difference: Difference) -> bool:
        return any(fnmatch.fnmatchcase(difference.case, pattern) for pattern in self.cases) and any(
            fnmatch.fnmatchcase(difference.path, pattern) for pattern in self.paths
        )


class Theirs(msgspec.Struct):
    """What the other implementation makes of a case; ``error`` is in its own words."""

    error: str | None
    properties: dict[str, Any]
    ports: dict[str, dict[str, Any]]
    plugin_data: dict[str, Any]


def explanations() -> list[Explanation]:
    return msgspec.yaml.decode(EXPLANATIONS.read_bytes(), type=list[Explanation])


def compare(case: Case, ours: Outcome, theirs: Theirs) -> list[Difference]:
    """Return all differences. Where both refuse there is none: what a refusal leaves behind is told apart."""
    if ours.error is not None or theirs.error is not None:
        if ours.error is not None and theirs.error is not None:
            return []
        return [Difference(case.name, "error", ours.error, theirs.error)]
    found = []
    for part in ("properties", "ports", "plugin_data"):
        for path, mine, other in _differences(part, getattr(ours, part), getattr(theirs, part)):
            found.append(Difference(case.name, path, mine, other))
    return found


def unexplained(found: Sequence[Difference], known: Sequence[Explanation]) -> list[Difference]:
    return [difference for difference in found if not any(one.covers(difference) for one in known)]


def unused(found: Sequence[Difference], known: Sequence[Explanation]) -> list[Explanation]:
    """Return the explanations of what does not differ any more."""
    return [one for one in known if not any(one.covers(difference) for difference in found)]


def _differences(path: str, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from _differences(f"{path}.{key}", ours.get(key, NOTHING), theirs.get(key, NOTHING))
    elif ours != theirs or isinstance(ours, bool) is not isinstance(theirs, bool):
        yield path, ours, theirs


_HEAD = """\
<!-- Made by tools/compare_with_ironic.py --page from tests/corpus/differences.yaml: do not edit. -->
# Where hooks differ from those of Ironic

The same inventory gives the same node, ports and plugin data as the inspection hooks of Ironic 39.0.0 give. What
follows is every exception. It was found by running the [golden corpus](../../tests/corpus) through both:
`tools/compare_with_ironic.py` installs the published Ironic in an environment of its own, runs its own hooks on its own
objects and database, and fails where a difference is not listed here, or where a listed one is none any more.

One difference shows in no single case: when a hook fails, Ironic keeps what the hooks before it wrote to the node and
its ports. Here [nothing of it is committed](../explanation/delivery-and-claims.md): the node has its error, the
inspection its inventory as the ramdisk sent it, and the timeline the warnings of the hooks.

| what | Ironic 39.0.0 | here | why |
|---|---|---|---|
"""


def page(known: Sequence[Explanation]) -> str:
    """Return the explanations as a page of the reference."""
    rows = [f"| {one.name} | {one.theirs} | {one.ours} | {one.why} |\n" for one in known]
    return _HEAD + "".join(row.replace("<all-in>", "`<all-in>`").replace("<or>", "`<or>`") for row in rows)
