"""Runs the golden corpus through the hooks of the published Ironic, and shows where they and ours differ.

    python3 -m tools compare

sets up .ironic-venv, prints every difference with its explanation (tests/corpus/differences.yaml), and ends with 1
where one is not explained or an explanation has become pointless. ``--page`` writes
docs/reference/differences-from-ironic.md, without Ironic.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.corpus import Case, load
from tests.corpus.compare import (
    Difference,
    Explanation,
    Theirs,
    compare,
    explanations,
    page,
    unexplained,
    unused,
)
from tests.corpus.perform import perform

ROOT = Path(__file__).resolve().parents[1]
IRONIC = ROOT / ".ironic-venv" / "bin" / "python"
PAGE = ROOT / "docs" / "reference" / "differences-from-ironic.md"
# Commits of thousands of ports need not reach a disk.
_FAST = "/dev/shm"


def main() -> int:
    """Compare, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page of the explanations")
    parser.add_argument("--python", type=Path, default=IRONIC, help="an interpreter that has Ironic")
    parser.add_argument("--case", action="append", help="only this case; may be repeated")
    parser.add_argument("--inventories", type=Path, help="a directory with recorded inventories to compare as well")
    options = parser.parse_args()
    known = explanations()
    if options.page:
        PAGE.write_text(page(known), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
        return 0
    cases = [case for case in load() if not options.case or case.name in options.case]
    cases += recorded(options.inventories) if options.inventories else []
    theirs = run_theirs(options.python, cases)
    found = [
        difference
        for case, other in zip(cases, theirs, strict=True)
        for difference in compare(case, perform(case), other)
    ]
    return report(cases, theirs, found, known, whole=not options.case)


def recorded(directory: Path) -> list[Case]:
    """Return a case for each recorded inventory, with options that give every hook something to do."""
    options = {"add_ports": "all", "pci_device_alias": ['{"vendor_id": "8086", "product_id": "1563", "name": "nic"}']}
    cases = []
    for path in sorted(directory.glob("*.json")):
        body = msgspec.json.decode(path.read_bytes())
        body = body if "inventory" in body else {"inventory": body}
        cases.append(Case(name=f"recorded-{path.stem}", about="recorded", body=body, options=options))
    return cases


def run_theirs(python: Path, cases: Sequence[Case]) -> list[Theirs]:
    """Return what Ironic makes of the cases."""
    given = []
    for case in cases:
        inventory, plugin_data = case.whole()
        fields = ("name", "hooks", "options", "properties", "ports", "elsewhere", "previous")
        given.append(
            {name: getattr(case, name) for name in fields} | {"inventory": inventory, "plugin_data": plugin_data}
        )
    with tempfile.TemporaryDirectory(dir=_FAST if Path(_FAST).is_dir() else None) as directory:
        # -P: or Ironic imports what is in tools/ instead of its own dependencies of the same names.
        command = [python, "-P", Path(__file__).with_name("ironic_hooks.py"), directory]
        done = subprocess.run(command, input=msgspec.json.encode(given), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"Ironic's hooks could not be run (exit code {done.returncode}); see above")
    return msgspec.json.decode(done.stdout, type=list[Theirs])


def report(
    cases: Sequence[Case],
    theirs: Sequence[Theirs],
    found: Sequence[Difference],
    known: Sequence[Explanation],
    *,
    whole: bool,
) -> int:
    """Print everything; return the exit code."""
    for line in lines(found, known):
        print(line)
    refused = sum(other.error is not None for other in theirs)
    differing = len({difference.case for difference in found if not difference.path.endswith(".is_added")})
    missing, pointless = unexplained(found, known), unused(found, known) if whole else []
    for difference in missing:
        print(
            f"NOT EXPLAINED  {difference.case}: {brief(difference.path)}:"
            f" here {brief(difference.ours)}, there {brief(difference.theirs)}"
        )
    for one in pointless:
        print(f"NO DIFFERENCE  {one.name}: remove it from tests/corpus/differences.yaml")
    print(
        f"{len(cases)} cases, {refused} refused by Ironic, {differing} with a difference beside is_added;"
        f" {len(missing)} differences not explained, {len(pointless)} explanations without a difference"
    )
    return 1 if missing or pointless else 0


def lines(found: Sequence[Difference], known: Sequence[Explanation]) -> Iterator[str]:
    """Return the explained differences in words, one explanation after the other."""
    by_name: dict[str, list[Difference]] = collections.defaultdict(list)
    for difference in found:
        for one in known:
            if one.covers(difference):
                by_name[one.name].append(difference)
    for one in known:
        places = by_name[one.name]
        yield f"{one.name}: {len(places)} places in {len({place.case for place in places})} cases. {one.why}"
        for place in places[:3]:
            yield f"    {place.case}: {brief(place.path)}: here {brief(place.ours)}, there {brief(place.theirs)}"


def brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else text[:99] + "…"


if __name__ == "__main__":
    sys.exit(main())
