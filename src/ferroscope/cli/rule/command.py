"""The group ``ferroscope rule``: which of its commands is in which file."""

from __future__ import annotations

import click

from ferroscope.cli.output import Group
from ferroscope.cli.rule import explain, write


@click.group(cls=Group)
def rule() -> None:
    """Make, show, try and change inspection rules.

    RULE is the UUID of a rule; FILE holds a rule or a list of rules in YAML or JSON, '-' is standard input.
    """


for _command in (
    write.list_rules,
    write.show,
    write.create,
    write.set_rule,
    write.delete,
    explain.explain,
    explain.check,
):
    rule.add_command(_command)
