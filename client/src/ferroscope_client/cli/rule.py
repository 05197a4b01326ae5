"""``ferroscope rule list | show | create | set | delete | explain | check``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from ferroscope_client.cli.lookup import Listing, find
from ferroscope_client.cli.output import Group, Output, key_values, table, with_api
from ferroscope_client.cli.text import is_terminal, moment
from ferroscope_client.client import Client, Json
from ferroscope_client.core import values
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

# Rule files: YAML or JSON, one rule or a list of rules.


def content(path: str) -> bytes:
    """Return the contents of the file; ``-`` is standard input."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as exc:
        raise Failure(f"cannot read {path}: {exc.strerror}", exit_code=Exit.USAGE) from None


def rules(path: str) -> list[dict[str, Any]]:
    """Return the rules in the file, unchecked."""
    import yaml

    try:
        written: Json = yaml.safe_load(content(path))
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise Failure(
            f"{path} is not valid YAML or JSON: {' '.join(str(exc).split())[:300]}", exit_code=Exit.USAGE
        ) from None
    try:
        json.dumps(written, allow_nan=False, default=str)
    except (ValueError, TypeError, RecursionError) as exc:
        raise Failure(f"{path} contains a value that JSON does not support: {exc}", exit_code=Exit.USAGE) from None
    read = written if isinstance(written, list) else [written]
    if not read or not all(isinstance(rule, dict) for rule in read):
        raise Failure(
            f"{path} contains no rule",
            exit_code=Exit.USAGE,
            advice="a rule has actions, and usually conditions: see: ferroscope docs write-a-rule",
        )
    return read


def read_rule(path: str) -> dict[str, Any]:
    """Return the only rule in the file."""
    read = rules(path)
    if len(read) != 1:
        raise Failure(f"{path} contains {many(len(read), 'rule')}; expected one", exit_code=Exit.USAGE)
    return read[0]


PATH: Final = "/v1/inspection_rules"

rule_argument = click.argument("uuid", metavar="RULE")


def rule_path(uuid: str) -> str:
    """Return the path of a rule; ``Failure`` unless it is a UUID: an empty one would mean all rules."""
    if not values.is_uuid(uuid):
        raise Failure(
            f"rule {uuid[:80]!r} not found: use the rule's UUID",
            exit_code=Exit.NOT_FOUND,
            advice="list the rules: ferroscope rule list",
        )
    return f"{PATH}/{uuid}"


@click.command("list")
@with_api
def list_rules(api: Client, out: Output) -> None:
    """List rules in the order in which they run."""
    rules = list(api.pages(PATH, "inspection_rules", detail=True))
    rules.sort(key=lambda rule: -rule["priority"])  # stable: equal priorities remain in the order of creation

    def draw(screen: Any) -> None:
        rows = [_row(rule) for rule in rules]
        titles = ("UUID", "PRIORITY", "SCOPE", "CONDITIONS", "ACTIONS", "DESCRIPTION")
        spare = ("DESCRIPTION", "CONDITIONS", "ACTIONS", "SCOPE")
        screen.print(Listing(titles, rows, spare=spare, below="DESCRIPTION"))

    out.show(rules, draw)


@click.command("show")
@rule_argument
@with_api
def show(api: Client, out: Output, *, uuid: str) -> None:
    """Show a rule."""
    _show(out, api.get(rule_path(uuid)))


@click.command("create")
@click.argument("path", metavar="FILE")
@with_api
def create(api: Client, out: Output, *, path: str) -> None:
    """Create the rules in FILE, all or none; the service validates each of them."""
    made: list[Json] = []
    for number, rule in enumerate(rules(path), 1):
        try:
            made.append(api.post(PATH, rule))
        except Failure as exc:
            raise _without(api, made, exc, f"{path}, rule {number}: {exc.message}") from None
    out.show(made, lambda screen: screen.print("\n".join(rule["uuid"] for rule in made)))
    if not out.for_programs:
        out.say(f"to test it: ferroscope rule explain {made[0]['uuid']} --node NODE")


def _without(api: Client, made: list[Json], exc: Failure, message: str) -> Failure:
    """Delete the rules that were created before one failed; return the failure to report."""
    code = Exit(exc.exit_code)
    for number, rule in enumerate(made):
        try:
            api.delete(rule_path(rule["uuid"]))
        except Failure as second:
            left = " ".join(rule["uuid"] for rule in made[number:])
            advice = f"rules before it were created and could not be deleted: ferroscope rule delete {left}"
            return Failure(f"{message} ({second.message})", exit_code=code, advice=advice)
    return Failure(f"{message} No rule was created.", exit_code=code, advice=exc.advice)


@click.command("set")
@rule_argument
@click.option("--description", help="Description.")
@click.option("--priority", type=click.IntRange(0, 9999), help="Priority; rules with higher priority run first.")
@click.option("--scope", help="Apply only to nodes with this property inspection_scope; '' for all nodes.")
@click.option("--sensitive", is_flag=True, help="Hide conditions and actions permanently.")
@click.option("--file", "path", metavar="FILE", help="Read all fields from FILE.")
@with_api
def set_rule(api: Client, out: Output, *, uuid: str, path: str | None, sensitive: bool, **fields: Any) -> None:
    """Change a rule."""
    wanted = {} if path is None else {name: value for name, value in read_rule(path).items() if name != "uuid"}
    wanted |= {name: value for name, value in fields.items() if value is not None}
    if sensitive:
        wanted["sensitive"] = True
    if not wanted:
        raise click.UsageError("nothing to change: use at least one option; see ferroscope rule set --help")
    changes = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in wanted.items()]
    _show(out, api.patch(rule_path(uuid), changes))


@click.command("delete")
@click.argument("uuids", metavar="RULE...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all rules.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; implied without a terminal.")
@with_api
def delete(api: Client, out: Output, *, uuids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Delete rules."""
    if bool(uuids) == everything:
        raise click.UsageError("specify the rules to delete, or --all")
    paths = [rule_path(uuid) for uuid in uuids]
    if not yes and is_terminal(sys.stdin):
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
        "Created": moment(rule["created_at"]),
        "Updated": moment(rule["updated_at"]),
    }
    out.show(rule, lambda screen: screen.print(key_values(shown)))


def _lines(items: list[Json]) -> str:
    import json

    return "\n".join(f"{item['op']}  {json.dumps({k: v for k, v in item.items() if k != 'op'})}" for item in items)


def _row(rule: Json) -> tuple[Any, ...]:
    hidden = rule["actions"] is None
    actions = "hidden" if hidden else ", ".join(dict.fromkeys(action["op"] for action in rule["actions"]))
    conditions = "hidden" if hidden else len(rule["conditions"])
    return rule["uuid"], rule["priority"], rule["scope"], conditions, actions, rule["description"]


# ``ferroscope rule explain | check``: test rules without storing anything.

_MARKS: Final = {True: "true", False: "false"}


@click.command("explain")
@click.argument("rule", metavar="[RULE|FILE]", required=False)
@click.option("--node", "ident", metavar="NODE", required=True, help="The node with whose stored data to test.")
@with_api
def explain(api: Client, out: Output, *, rule: str | None, ident: str) -> None:
    """Show what a rule, or all rules, would do with a node: the result of each condition, and the changes.

    Uses the data of the node's newest inspection, and the current hooks and rules. FILE contains a rule that is not
    stored yet. Exit code 1: the rules would fail the inspection.
    """
    body: dict[str, Any] = {"node": find(api, ident)["uuid"]}
    if rule is not None and (rule == "-" or Path(rule).exists()):
        body["draft"] = read_rule(rule)
    elif rule is not None:
        body["rule"] = rule
    explanation = api.post(f"{PATH}/explain", body)
    out.show(explanation, lambda screen: _draw(screen, explanation))
    if explanation["failed"]:
        raise click.exceptions.Exit(Exit.FAILURE)


def _draw(screen: Any, explanation: Json) -> None:
    for rule in explanation["rules"]:
        screen.print(f"{rule['uuid']}  {rule['description'] or ''}".rstrip())
        screen.print(f"  {rule['result']}{': ' + rule['error'] if rule['error'] else ''}")
        for condition in rule["conditions"] or ():
            _draw_condition(screen, condition)
        for action in rule["actions"] or ():
            screen.print(f"    then {action['op']}  {_arguments(action['args'])}")
    changes = [("node", change) for change in explanation["node"]]
    changes += [(f"port {port['address']}", change) for port in explanation["ports"] for change in port["changes"]]
    changes += [("plugin data", change) for change in explanation["plugin_data"]]
    screen.print("")
    if changes:
        rows = ((where, change["path"], _value(change, "before"), _value(change, "after")) for where, change in changes)
        screen.print(table(("WHAT", "PATH", "BEFORE", "AFTER"), rows))
    else:
        screen.print("The inspection would fail." if explanation["failed"] else "Nothing would change.")
    if explanation["calls"]:
        screen.print(key_values({"Would call": explanation["calls"]}))


def _draw_condition(screen: Any, condition: Json) -> None:
    screen.print(f"    if {condition['op']}: {_MARKS[condition['holds']]}")
    for condition_check in condition["checks"]:
        missing = (
            f"{condition_check['missing']} not found"
            if condition_check["missing"]
            else _MARKS[condition_check["holds"]]
        )
        screen.print(f"       {_arguments(condition_check['args'])}  {missing}")
    if condition["left_out"]:
        screen.print(f"       and {condition['left_out']} more")


def _arguments(args: Json) -> str:
    shown = {name: value for name, value in (args or {}).items() if value not in (None, False)}
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)[:200]}" for name, value in shown.items())


def _value(change: Json, side: str) -> Any:
    return json.dumps(change[side], ensure_ascii=False) if side in change else None


@click.group(cls=Group)
def rule() -> None:
    """Create, show, test and change inspection rules.

    RULE is the UUID of a rule; FILE contains a rule or a list of rules in YAML or JSON, '-' is standard input.
    """


for _command in (
    list_rules,
    show,
    create,
    set_rule,
    delete,
    explain,
):
    rule.add_command(_command)
