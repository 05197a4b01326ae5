"""``ferroscope rule check``: validates rules without the service, as it does with those of its configuration."""

from __future__ import annotations

import click

from ferroscope.rules import builtin
from ferroscope.rules.data import InvalidRuleError
from ferroscope_client.cli.output import Output, output_option
from ferroscope_client.cli.rule import content
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure


@click.command("check")
@click.argument("path", metavar="FILE")
@output_option
def check(path: str, fmt: str) -> None:
    """Validate a file with a rule or a list of rules, offline; also for [inspection_rules] built_in_rules."""
    out = Output(fmt)
    try:
        rules = builtin.read(path, content(path), single=True)
    except InvalidRuleError as exc:
        problems = list(exc.problems)
        out.show({"valid": False, "problems": problems}, lambda screen: screen.print("\n".join(problems)))
        raise Failure(f"{path} is invalid", exit_code=Exit.FAILURE) from None
    result = {"valid": True, "rules": [rule.rule.uuid for rule in rules]}
    out.show(result, lambda screen: screen.print(f"{path}: {many(len(rules), 'rule')}, all valid"))
