"""``ferroscope rule list | show | create | set | delete``."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from ferroscope.cli.client import Api, Json
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.listing import Listing
from ferroscope.cli.output import Output, facts, with_api
from ferroscope.cli.rule import files
from ferroscope.core import values

PATH: Final = "/v1/inspection_rules"

rule_argument = click.argument("uuid", metavar="RULE")


def rule_path(uuid: str) -> str:
    """Return the path of a rule; ``Failure`` unless it is a UUID: an empty one would name all rules."""
    if not values.is_uuid(uuid):
        raise Failure(
            f"there is no rule {uuid[:80]!r}: a rule is named by its UUID",
            exit_code=Exit.NOT_FOUND,
            advice="see what there is: ferroscope rule list",
        )
    return f"{PATH}/{uuid}"


@click.command("list")
@with_api
def list_rules(api: Api, out: Output) -> None:
    """List rules in the order in which they run."""
    rules = list(api.pages(PATH, "inspection_rules", detail=True))
    rules.sort(key=lambda rule: -rule["priority"])  # at equal priority they stay in the order of their creation

    def draw(screen: Any) -> None:
        rows = [_row(rule) for rule in rules]
        titles = ("UUID", "PRIORITY", "SCOPE", "CONDITIONS", "ACTIONS", "DESCRIPTION")
        spare = ("DESCRIPTION", "CONDITIONS", "ACTIONS", "SCOPE")
        screen.print(Listing(titles, rows, spare=spare, below="DESCRIPTION"))

    out.show(rules, draw)


@click.command("show")
@rule_argument
@with_api
def show(api: Api, out: Output, *, uuid: str) -> None:
    """Show a rule."""
    _show(out, api.get(rule_path(uuid)))


@click.command("create")
@click.argument("path", metavar="FILE")
@with_api
def create(api: Api, out: Output, *, path: str) -> None:
    """Create the rules of FILE, all of them or none; each is checked by the service before it is stored."""
    made: list[Json] = []
    for number, rule in enumerate(files.rules(path), 1):
        try:
            made.append(api.post(PATH, rule))
        except Failure as exc:
            raise _without(api, made, exc, f"{path}, rule {number}: {exc.message}") from None
    out.show(made, lambda screen: screen.print("\n".join(rule["uuid"] for rule in made)))
    if not out.for_programs:
        out.say(f"try it: ferroscope rule explain {made[0]['uuid']} --node NODE")


def _without(api: Api, made: list[Json], exc: Failure, message: str) -> Failure:
    """Delete the rules that were made before one failed; return what to say."""
    code = Exit(exc.exit_code)
    for number, rule in enumerate(made):
        try:
            api.delete(rule_path(rule["uuid"]))
        except Failure as second:
            left = " ".join(one["uuid"] for one in made[number:])
            advice = f"rules before it were created, and could not be deleted again: ferroscope rule delete {left}"
            return Failure(f"{message} ({second.message})", exit_code=code, advice=advice)
    return Failure(f"{message} No rule was created.", exit_code=code, advice=exc.advice)


@click.command("set")
@rule_argument
@click.option("--description", help="Say what it is for.")
@click.option("--priority", type=click.IntRange(0, 9999), help="Greater ones run first.")
@click.option("--scope", help="Only for nodes whose property inspection_scope is this; '' for all.")
@click.option("--sensitive", is_flag=True, help="Never show its conditions and actions again.")
@click.option("--file", "path", metavar="FILE", help="Take everything from FILE.")
@with_api
def set_rule(api: Api, out: Output, *, uuid: str, path: str | None, sensitive: bool, **fields: Any) -> None:
    """Change a rule; what is not named stays as it is."""
    wanted = {} if path is None else {name: value for name, value in files.one(path).items() if name != "uuid"}
    wanted |= {name: value for name, value in fields.items() if value is not None}
    if sensitive:
        wanted["sensitive"] = True
    if not wanted:
        raise click.UsageError("nothing to change: name at least one option; see ferroscope rule set --help")
    changes = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in wanted.items()]
    _show(out, api.patch(rule_path(uuid), changes))


@click.command("delete")
@click.argument("uuids", metavar="RULE...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all rules.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; without a terminal nothing is ever asked.")
@with_api
def delete(api: Api, out: Output, *, uuids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Delete rules."""
    if bool(uuids) == everything:
        raise click.UsageError("name the rules to delete, or --all")
    paths = [rule_path(uuid) for uuid in uuids]
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {'all rules' if everything else ', '.join(uuids)}?", abort=True, err=True)
    if everything:
        api.delete(PATH)
    for path in paths:
        api.delete(path)
    out.show(list(uuids), lambda screen: screen.print("deleted"))


def _show(out: Output, rule: Json) -> None:
    shown = {
        "UUID": rule["uuid"],
        "Description": rule["description"],
        "Priority": rule["priority"],
        "Phase": rule["phase"],
        "Scope": rule["scope"],
        "Dialect": rule["dialect"],
        "Sensitive": rule["sensitive"],
        "Conditions": "hidden" if rule["conditions"] is None else _lines(rule["conditions"]),
        "Actions": "hidden" if rule["actions"] is None else _lines(rule["actions"]),
        "Created": rule["created_at"],
        "Updated": rule["updated_at"],
    }
    out.show(rule, lambda screen: screen.print(facts(shown)))


def _lines(items: list[Json]) -> str:
    import json

    return "\n".join(f"{item['op']}  {json.dumps({k: v for k, v in item.items() if k != 'op'})}" for item in items)


def _row(rule: Json) -> tuple[Any, ...]:
    hidden = rule["actions"] is None
    actions = "hidden" if hidden else ", ".join(dict.fromkeys(action["op"] for action in rule["actions"]))
    conditions = "hidden" if hidden else len(rule["conditions"])
    return rule["uuid"], rule["priority"], rule["scope"], conditions, actions, rule["description"]
