"""``ferroscope rule explain | check``: try rules before they meet a machine; nothing is stored by either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from ferroscope.cli.client import Api, Json
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import find
from ferroscope.cli.output import Output, facts, output_option, table, with_api
from ferroscope.cli.rule import files
from ferroscope.cli.rule.write import PATH

_MARKS: Final = {True: "holds", False: "does not hold"}


@click.command("explain")
@click.argument("rule", metavar="[RULE|FILE]", required=False)
@click.option("--node", "ident", metavar="NODE", required=True, help="On whose stored data.")
@with_api
def explain(api: Api, out: Output, *, rule: str | None, ident: str) -> None:
    """Show what a rule, or all rules, would do with a node: which condition gave what, and what would change.

    It works on the data of the node's newest inspection, with the hooks and rules of now. A FILE is a rule that
    is not stored yet. Ends with 1 where the rules would fail the inspection.
    """
    body: dict[str, Any] = {"node": find(api, ident)["uuid"]}
    if rule is not None and (rule == "-" or Path(rule).exists()):
        body["draft"] = files.one(rule)
    elif rule is not None:
        body["rule"] = rule
    told = api.post(f"{PATH}/explain", body)
    out.show(told, lambda screen: _draw(screen, told))
    if told["failed"]:
        raise click.exceptions.Exit(Exit.FAILURE)


@click.command("check")
@click.argument("path", metavar="FILE")
@output_option
def check(path: str, fmt: str) -> None:
    """Check a file with a rule or a list of rules, without any service; [inspection_rules] built_in_rules is a list."""
    from ferroscope.rules import builtin
    from ferroscope.rules.data import InvalidRuleError

    out = Output(fmt)
    try:
        rules = builtin.read(path, files.content(path), one=True)
    except InvalidRuleError as exc:
        problems = list(exc.problems)
        out.show({"valid": False, "problems": problems}, lambda screen: screen.print("\n".join(problems)))
        raise Failure(f"{path} cannot be used", exit_code=Exit.FAILURE) from None
    told = {"valid": True, "rules": [rule.rule.uuid for rule in rules]}
    number = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    out.show(told, lambda screen: screen.print(f"{path}: {number}, all valid"))


def _draw(screen: Any, told: Json) -> None:
    for rule in told["rules"]:
        screen.print(f"{rule['uuid']}  {rule['description'] or ''}".rstrip())
        screen.print(f"  {rule['result']}{': ' + rule['error'] if rule['error'] else ''}")
        for condition in rule["conditions"] or ():
            _draw_condition(screen, condition)
        for action in rule["actions"] or ():
            screen.print(f"    then {action['op']}  {_arguments(action['args'])}")
    changes = [("node", change) for change in told["node"]]
    changes += [(f"port {port['address']}", change) for port in told["ports"] for change in port["changes"]]
    changes += [("plugin data", change) for change in told["plugin_data"]]
    screen.print("")
    if changes:
        rows = ((where, one["path"], _value(one, "before"), _value(one, "after")) for where, one in changes)
        screen.print(table(("WHAT", "PATH", "BEFORE", "AFTER"), rows))
    else:
        screen.print("The inspection would fail." if told["failed"] else "Nothing would change.")
    if told["calls"]:
        screen.print(facts({"Would call": told["calls"]}))


def _draw_condition(screen: Any, condition: Json) -> None:
    screen.print(f"    if {condition['op']}: {_MARKS[condition['holds']]}")
    for one in condition["checks"]:
        missing = f"there is no {one['missing']}" if one["missing"] else _MARKS[one["holds"]]
        screen.print(f"       {_arguments(one['args'])}  {missing}")
    if condition["left_out"]:
        screen.print(f"       and {condition['left_out']} more")


def _arguments(args: Json) -> str:
    shown = {name: value for name, value in (args or {}).items() if value not in (None, False)}
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)[:200]}" for name, value in shown.items())


def _value(change: Json, side: str) -> Any:
    return json.dumps(change[side], ensure_ascii=False) if side in change else None
