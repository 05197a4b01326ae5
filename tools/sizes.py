"""``python -m tools.sizes [--packages] [REVISION ...]``: how large the package is, and whether imports run in circles.

Without a revision it measures the files as they are here, and each package in it. Of each revision it prints one line:
files, lines, the median file and the largest one, the circles of imports, counted over all imports, those inside
functions too, and the Protocols with at most one implementation (``tools.protocols``). ``--packages`` prints the
packages of each revision, too, so that growth can be told from new packages.
"""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from tools.protocols import classes, implementations

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("ferroscope", "ferroscope_sim")


class Size(NamedTuple):
    """What one package measures; ``circles`` are groups of modules that import each other."""

    files: int
    lines: int
    median: float
    largest: tuple[str, int]
    circles: list[list[str]]
    protocols: list[str]
    """Those with at most one implementation."""
    parts: dict[str, tuple[int, int]]
    """Files and lines of each package and module directly below."""

    def __str__(self) -> str:
        name, lines = self.largest
        return (
            f"{self.files:4} files {self.lines:6} lines, median {self.median:5.1f}, "
            f"largest {name} ({lines}), {len(self.circles)} circles of imports, "
            f"{len(self.protocols)} Protocols with at most one implementation"
        )


def measure(source: Path, package: str) -> Size:
    """Measure ``package`` below the directory ``source``; ``ValueError`` where it has no file."""
    modules = {_module(path, source): path for path in sorted((source / package).rglob("*.py"))}
    if not modules:
        raise ValueError(f"no Python file in {source / package}")
    lines = {path.relative_to(source).as_posix(): len(path.read_bytes().splitlines()) for path in modules.values()}
    largest = max(lines.items(), key=lambda item: item[1])
    parts: dict[str, tuple[int, int]] = {}
    for path, count in lines.items():
        name = path.split("/")[1]
        files, total = parts.get(name, (0, 0))
        parts[name] = files + 1, total + count
    median = statistics.median(lines.values())
    few = [one.name for one, by in implementations(classes(source / package)).items() if len(by) <= 1]
    return Size(len(lines), sum(lines.values()), median, largest, _circles(_graph(modules)), few, parts)


def _module(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return which module imports which; what only type checkers see is left out."""
    return {name: {found for found in _imports(path, modules) if found != name} for name, path in modules.items()}


def _imports(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                name = name if name in modules else node.module
                if name in modules:
                    yield name


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other: everything that is left when leaves are taken away."""
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }
    return sorted(sorted(group) for group in groups)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    pending = list(graph[start])
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(graph[name])
    return found


def _print(title: str, source: Path, *, packages: bool) -> None:
    for package in _PACKAGES:
        if (source / package).is_dir():
            size = measure(source, package)
            sys.stdout.write(f"{title:>12}  {package:14} {size}\n")
            for circle in size.circles:
                sys.stdout.write(f"{'':>12}  {'':14} circle: {' '.join(circle)}\n")
            if packages:
                for name, (files, lines) in sorted(size.parts.items()):
                    sys.stdout.write(f"{'':>12}  {'':2}{name:16} {files:4} files {lines:6} lines\n")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--packages", is_flag=True, help="Print the packages of each revision, too.")
@click.argument("revisions", nargs=-1, metavar="[REVISION]...")
def main(revisions: tuple[str, ...], *, packages: bool) -> None:
    """Print files, lines, median and largest file, circles of imports and Protocols; of the files here by default."""
    if not revisions:
        _print("here", _ROOT / "src", packages=True)
    for revision in revisions:
        command = ["git", "-C", str(_ROOT), "archive", "--end-of-options", revision, "src"]
        made = subprocess.run(command, capture_output=True, check=False)
        if made.returncode:
            raise click.ClickException(made.stderr.decode(errors="replace").strip())
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["tar", "-x"], input=made.stdout, cwd=place, check=True)
            _print(revision, Path(place) / "src", packages=packages)


if __name__ == "__main__":
    main()
