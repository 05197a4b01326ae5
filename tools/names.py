"""``python -m tools.names [SOURCE]...``: names in the product, or below other folders, that do not say what they name.

It counts three kinds. Functions whose whole name is a past participle, such as ``concluded``: a function that does
something is a verb with its object. Variables and arguments such as ``one`` and ``found``: each assignment, argument
and ``for`` counts. Numbers of a module with a name of one word, such as ``_MOST``: a constant says quantity and unit.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

SOURCES: Final = tuple(Path(__file__).parents[1] / folder for folder in ("client/src", "src"))
PLACEHOLDERS: Final = {"one", "other", "found", "given", "known", "what", "way", "so", "these"}
# Without words that are verbs in the present as well, such as "read" and "set".
_PARTICIPLE: Final = re.compile(
    r"""
    (?! (?:exceed|feed|indeed|need|proceed|seed|shed|speed|succeed)$ ) [a-z]{2,}ed
    | (?:un)? (?:begun|bound|bought|brought|broken|built|caught|chosen|done|drawn|driven|fallen|felt|forbidden|forgotten
    |found|frozen|given|gone|heard|held|hidden|kept|known|laid|led|left|lent|lost|made|meant|met|overtaken|paid|risen
    |said|seen|sent|shown|sold|spelt|spent|spoken|stolen|sworn|swept|taken|taught|thought|thrown|told|torn|understood
    |withdrawn|withheld|won|worn|woven|written)
    """,
    re.VERBOSE,
)


class Names(NamedTuple):
    """What was counted, in a file or in all of them."""

    functions: int
    participles: int
    variables: int
    placeholders: int
    one_word_constants: int

    @property
    def unclear(self) -> int:
        return self.participles + self.placeholders + self.one_word_constants

    @property
    def participles_percent(self) -> float:
        return round(100 * self.participles / max(self.functions, 1), 1)

    @property
    def placeholders_per_1000(self) -> float:
        return round(1000 * self.placeholders / max(self.variables, 1), 1)


def total(counts: Iterable[Names]) -> Names:
    """Return the sum of the counts of several files."""
    return Names(*map(sum, zip(*counts, strict=True)))


def count(sources: Iterable[Path]) -> dict[Path, Names]:
    """Count the names in each Python file below the ``sources``; paths are relative to these."""
    return {path: count_module(text) for path, text in _read(sources)}


def _read(sources: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for source in sources:
        for path in sorted(source.rglob("*.py")):
            yield path.relative_to(source), path.read_text(encoding="utf-8")


def count_module(text: str) -> Names:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    functions = [name for name in functions if not name.startswith("__")]
    variables = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    variables += [node.arg for node in nodes if isinstance(node, ast.arg)]
    return Names(
        len(functions),
        sum(_PARTICIPLE.fullmatch(name.strip("_")) is not None for name in functions),
        len(variables),
        sum(name.strip("_") in PLACEHOLDERS for name in variables),
        sum("_" not in name.strip("_") for name in _numeric_constants(tree)),
    )


def _numeric_constants(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_number(statement.value):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper())


def _is_number(value: ast.expr | None) -> bool:
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def print_sample(sources: Iterable[Path], number: int, seed: int) -> None:
    """Print random functions, each with the first line of its docstring: do they say to a stranger what they do?"""
    functions = [
        (path, node)
        for path, text in _read(sources)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__")
    ]
    for path, node in random.Random(seed).sample(functions, number):
        summary = (ast.get_docstring(node) or "(no docstring)").splitlines()[0]
        click.echo(f"{path}:{node.lineno}\n  {node.name}({ast.unparse(node.args)})\n  {summary}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sources", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path), default=SOURCES)
@click.option("--files", default=20, show_default=True, help="Number of files to print, the worst first.")
@click.option("--sample", default=0, help="Print random functions with their docstrings instead.")
@click.option("--seed", default=1, show_default=True, help="Which functions a sample has.")
def main(sources: tuple[Path, ...], files: int, sample: int, seed: int) -> None:
    """Print how many names do not say what they name: in all files, in each package, and in the worst files."""
    if sample:
        print_sample(sources, sample, seed)
        return
    counts = count(sources)
    packages: dict[str, list[Names]] = {}
    for path, own in counts.items():
        packages.setdefault(".".join(path.parts[:-1][:2]), []).append(own)
    click.echo("participles  of functions     %  placeholders  of 1,000  one-word numbers")
    click.echo(_to_line(total(counts.values()), "all"))
    for package, of_files in packages.items():
        click.echo(_to_line(total(of_files), package))
    worst = sorted(counts.items(), key=lambda item: -item[1].unclear)
    for path, own in worst[:files]:
        click.echo(_to_line(own, str(path)))


def _to_line(names: Names, subject: str) -> str:
    return (
        f"{names.participles:11} {names.functions:13} {names.participles_percent:5} {names.placeholders:13} "
        f"{names.placeholders_per_1000:9} {names.one_word_constants:17}  {subject}"
    )


if __name__ == "__main__":
    main()
