"""``python -m bench [PART]``: ``--help`` lists the parts; without one ``cycle``, ``reads``, ``scale`` and ``site``.

Exit code 1 where anything was wrong with what the service did; with ``--check`` 2 where a target is missed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from bench.report import Report, wait_until_alone

_ALONE: Final = ("cycle", "reads", "scale", "site")
_OTHERS: Final = ("against", "attached", "dead_nodes", "gate", "incumbents", "pages", "profile", "search", "trace")


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/var/tmp",
    show_default=True,
    help="Where databases and logs go while it runs; should be on a disk.",
)
@click.option("--save", is_flag=True, help="Keep everything as JSON in bench/results/.")
@click.option("--check", is_flag=True, help="End with code 2 where a target is missed.")
def main(context: click.Context, directory: Path, save: bool, check: bool) -> None:
    """Measure Ferroscope on this machine."""
    wait_until_alone(directory)
    report = Report(directory)
    context.obj = (report, directory)
    context.call_on_close(lambda: _end(report, context.invoked_subcommand or "all", save=save, check=check))
    if context.invoked_subcommand is None:
        for part in _ALONE:
            context.invoke(main.commands[part])


for part in (*_ALONE, *_OTHERS):
    main.add_command(import_module(f"bench.{part}").command)


def _end(report: Report, name: str, *, save: bool, check: bool) -> None:
    report.show_figures()
    if save:
        report.console.print(f"saved as {report.save(name)}")
    if report.problems:
        sys.exit(1)
    if check and any(figure.missed for figure in report.figures):
        sys.exit(2)


if __name__ == "__main__":
    main()
