"""``python -m tools.mutations``: breaks a random line of each package, and says which tests find it, and how soon.

Each mutation is made in a copy of the committed tree, and the tests are run there as ``make check`` and ``make test``
run them, until the first that fails. Survivors are printed with their line: they need a test, or make no difference.
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    "worker", "db", "api", "rules", "hooks", "bmc", "leadership.py", "cli",
    "contrib/boot/pxe_filter", "contrib/kubernetes/failover",
)  # fmt: skip
# What runs the tests, in order.
STAGES: Final = {
    "make check": ("tests/fast",),
    "make test": ("tests/store", "tests/api", "tests/smoke"),
    ".ci/run": ("tests/system",),
}
_FLIPPED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class Mutation(NamedTuple):
    """The line of a file, and what becomes of the expression between two of its columns."""

    file: Path
    line: int
    start: int
    end: int
    text: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        lines = path.read_bytes().split(b"\n")
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: self.start] + self.text.encode() + old[self.end :]
        path.write_bytes(b"\n".join(lines))


def mutations(file: Path) -> Iterator[Mutation]:
    """Yield what can be broken in the bodies of a file's functions: comparisons, conditions, numbers, booleans."""
    functions = [one for one in ast.walk(ast.parse((ROOT / file).read_bytes())) if isinstance(one, ast.FunctionDef)]
    nodes = {id(node): node for function in functions for part in function.body for node in ast.walk(part)}
    for node in nodes.values():
        text = _broken(node)
        if text is not None and isinstance(node, ast.expr) and node.lineno == node.end_lineno:
            assert node.end_col_offset is not None
            yield Mutation(file, node.lineno, node.col_offset, node.end_col_offset, text)


def _broken(node: ast.AST) -> str | None:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _FLIPPED:
            return ast.unparse(ast.Compare(left, [_FLIPPED[type(op)]()], [right]))
        case ast.BoolOp(op=op, values=values):
            return f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Constant(value=bool() as value):
            return repr(not value)
        case ast.Constant(value=int() as value):
            return repr(value + 1)
        case _:
            return None


def chosen(package: str, rng: random.Random) -> Mutation:
    """Return a random mutation of a package, of any of its lines with the same chance."""
    place = ROOT / "src" / "ferroscope" / package
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = [one for file in files for one in mutations(file.relative_to(ROOT))]
    lines = sorted({(one.file, one.line) for one in found})
    where = rng.choice(lines)
    return rng.choice([one for one in found if (one.file, one.line) == where])


def found_by(tree: Path, last: str) -> tuple[str, float, str]:
    """Return the command whose tests fail, after how many seconds, and which does; empty strings if none fails."""
    began = time.monotonic()
    # What a mutation keeps from happening is waited for in vain: for half a minute, not for two.
    environment = {
        "FERROSCOPE_TESTS_SLOWNESS": "0.25",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (tree / "client/src", tree / "src", tree))),
    }
    for stage, folders in STAGES.items():
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--numprocesses", str(os.cpu_count()), *folders]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return stage, time.monotonic() - began, failed[0].split(" - ")[0] if failed else done.stdout[-300:]
        if stage == last:
            break
    return "", time.monotonic() - began, ""


@click.command()
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--package", "packages", multiple=True, default=PACKAGES, help="A package of ferroscope; may be repeated."
)
@click.option("--last", type=click.Choice(list(STAGES)), default="make test", show_default=True, help="Try no further.")
def main(seed: int, packages: tuple[str, ...], last: str) -> None:
    """Break a random line of each package, and say which tests find it."""
    survived = 0
    for package in packages:
        mutation = chosen(package, random.Random(f"{seed} {package}"))
        with tempfile.TemporaryDirectory(prefix="ferroscope-mutation-") as directory:
            tree = Path(directory, "tree")
            subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
            before = (tree / mutation.file).read_text().splitlines()[mutation.line - 1].strip()
            mutation.apply(tree)
            after = (tree / mutation.file).read_text().splitlines()[mutation.line - 1].strip()
            stage, seconds, test = found_by(tree, last)
        survived += not stage
        verdict = f"{stage} after {seconds:.0f} s: {test}" if stage else f"survived {seconds:.0f} s"
        print(f"{mutation.file}:{mutation.line}\n  - {before}\n  + {after}\n  {verdict}", flush=True)
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
