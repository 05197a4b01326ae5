"""``ferroscope firmware report``: which firmware the machines of each model have, and which is outdated.

The inventories of the ramdisk and of Redfish name one component, the BIOS.
"""

from __future__ import annotations

from collections import defaultdict
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
    """The oldest version that is not outdated, for models that match the pattern."""

    model: _Text
    bios: _Text


class Line(msgspec.Struct):
    """The machines of one model with one version; ``wanted`` None: nothing says what they should have."""

    model: str
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
    help="YAML: a list of objects with model, a pattern, and bios, the oldest version that is not outdated.",
)
@click.option("--outdated", is_flag=True, help="Only what is outdated.")
@with_api_and_lists
def report(api: Api, out: Output, *, selector: str | None, file: Any, outdated: bool) -> None:
    """Show the BIOS versions of all inspected machines by model; with --list, which are outdated."""
    wanted = [] if file is None else _read(file)
    if outdated and file is None:
        raise click.UsageError("--outdated needs --list")
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    unknown = 0
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "hardware"), labels=selector):
        hardware = node.get("hardware") or {}
        if version := hardware.get("firmware"):
            found[names.model(hardware.get("product") or "unknown model"), version].append(label(node))
        else:
            unknown += 1
    lines = [_line(model, version, nodes, wanted) for (model, version), nodes in found.items()]
    lines = [line for line in lines if line.outdated or not outdated]
    lines.sort(key=lambda line: (natural(line.model), natural(line.version)))
    titles = ("MODEL", "BIOS", "MACHINES", "WANTED", "RESULT")
    rows = [(one.model, one.version, len(one.nodes), one.wanted, _result(one)) for one in lines]
    if not out.rows(titles, rows):
        out.show(msgspec.to_builtins(lines), lambda screen: screen.print(table(titles, rows)) if rows else None)
    late = sum(len(line.nodes) for line in lines if line.outdated)
    if not out.for_programs:
        total = sum(map(len, found.values()))
        out.say(f"{many(total, 'machine')}, {late} outdated; {unknown} without a known version")
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


def _line(model: str, version: str, nodes: list[str], wanted: list[Wanted]) -> Line:
    """Compare with the first entry for the model; numbers in versions count as numbers, so 2.9 is before 2.10."""
    needed = next((one.bios for one in wanted if fnmatchcase(model.lower(), one.model.lower())), None)
    old = needed is not None and natural(version) < natural(needed)
    return Line(model, version, needed, old, sorted(nodes, key=natural))


def _result(line: Line) -> str:
    if line.wanted is None:
        return ""
    return "outdated" if line.outdated else "ok"
