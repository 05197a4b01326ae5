"""``ferroscope firmware report``: which firmware the machines of each model have, and which is outdated.

The BIOS is known of every machine, other components of machines whose BMC or ramdisk reports them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import click
import msgspec

from ferroscope.cli.client import Api
from ferroscope.cli.exits import Exit
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output, table, with_api_and_lists
from ferroscope.cli.selection import selector_option
from ferroscope.cli.text import many
from ferroscope.core.values import natural
from ferroscope.hardware import names

_LARGEST: Final = 1024 * 1024
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest versions that are not outdated, for models that match the pattern.

    ``parts``: patterns of the models of NICs, disks and other components -> version.
    """

    model: _Text
    bios: _Text | None = None
    bmc: _Text | None = None
    parts: dict[_Text, _Text] = {}

    def __post_init__(self) -> None:
        if not (self.bios or self.bmc or self.parts):
            raise ValueError("expected bios, bmc or parts")

    def oldest(self, component: str, part: str) -> str | None:
        """Return the oldest version for a component; None if this says nothing of it."""
        if component in ("bios", "bmc"):
            return self.bios if component == "bios" else self.bmc
        return next((oldest for one, oldest in self.parts.items() if fnmatchcase(part.lower(), one.lower())), None)


class Line(msgspec.Struct):
    """The machines of one model with one version; ``wanted`` None: nothing says what they should have.

    ``part``: the model of the component, "" for the BIOS.
    """

    model: str
    component: str
    part: str
    version: str
    wanted: str | None
    outdated: bool
    nodes: list[str]


@click.group()
def firmware() -> None:
    """Report the firmware of machines."""


@firmware.command("report", epilog="Exit code 0: nothing is outdated. 1: some machines are. 2: FILE is invalid.")
@selector_option
@click.option(
    "--list",
    "file",
    type=click.File("rb", lazy=True),
    help="YAML: a list of objects with model, a pattern, and the oldest versions that are not outdated: bios, bmc, "
    "parts (patterns of the models of NICs, disks and others).",
)
@click.option("--outdated", is_flag=True, help="Only what is outdated.")
@with_api_and_lists
def report(api: Api, out: Output, *, selector: str | None, file: Any, outdated: bool) -> None:
    """Show the firmware of all inspected machines by model; with --list, what is outdated."""
    wanted = [] if file is None else _read(file)
    if outdated and file is None:
        raise click.UsageError("--outdated needs --list")
    found: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    total: set[str] = set()
    unknown = 0
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "hardware"), labels=selector):
        hardware = node.get("hardware") or {}
        components = list(_components(hardware))
        for component in components:
            found[names.model(hardware.get("product") or "unknown model"), *component].append(label(node))
        total |= {label(node)} if components else set()
        unknown += not components
    lines = [_line(*key, nodes, wanted) for key, nodes in found.items()]
    lines = [line for line in lines if line.outdated or not outdated]
    lines.sort(key=lambda line: (natural(line.model), line.component != "bios", *_order(line)))
    titles = ("MODEL", "COMPONENT", "PART", "VERSION", "MACHINES", "WANTED", "RESULT")
    rows = [
        (one.model, one.component, one.part, one.version, len(one.nodes), one.wanted, _result(one)) for one in lines
    ]
    if not out.rows(titles, rows):
        out.show(msgspec.to_builtins(lines), lambda screen: screen.print(table(titles, rows)) if rows else None)
    late = len({node for line in lines if line.outdated for node in line.nodes})
    if not out.for_programs:
        out.say(f"{many(len(total), 'machine')}, {late} outdated; {unknown} without a known version")
    if late:
        raise click.exceptions.Exit(Exit.FAILURE)


def _read(file: Any) -> list[Wanted]:
    import yaml

    content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise click.UsageError(f"{file.name} is larger than {_LARGEST // 2**20} MiB")
    try:
        return msgspec.convert(yaml.safe_load(content) or [], list[Wanted])
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"{file.name} is not YAML: {' '.join(str(exc).split())[:300]}") from None
    except msgspec.ValidationError as exc:
        raise click.UsageError(f"{file.name} is invalid: {exc}; quote versions such as '2.10'") from None


def _components(hardware: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield component, model and version of each firmware of a machine."""
    if version := hardware.get("firmware"):
        yield "bios", "", version
    for one in hardware.get("components") or ():
        yield one["component"], one.get("model", ""), one["version"]


def _order(line: Line) -> tuple[Any, ...]:
    return line.component, natural(line.part), natural(line.version)


def _line(model: str, component: str, part: str, version: str, nodes: list[str], wanted: list[Wanted]) -> Line:
    """Compare with the first entry for model and component; numbers count as numbers, so 2.9 is before 2.10."""
    entries = (one.oldest(component, part) for one in wanted if fnmatchcase(model.lower(), one.model.lower()))
    needed = next(filter(None, entries), None)
    old = needed is not None and natural(version) < natural(needed)
    return Line(model, component, part, version, needed, old, sorted(nodes, key=natural))


def _result(line: Line) -> str:
    if line.wanted is None:
        return ""
    return "outdated" if line.outdated else "ok"
