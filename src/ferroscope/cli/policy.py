"""``ferroscope policy list | check | sample``: the policies of the API, with the overrides of the configuration."""

from __future__ import annotations

import click

from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Group, Output, output_option, table
from ferroscope.cli.service import config_option, settings_of


@click.group(cls=Group)
def policy() -> None:
    """Show who may do what, and check the policy file."""


@policy.command("list")
@config_option
@output_option
def list_policies(files: tuple[str, ...], fmt: str) -> None:
    """List the policies with their checks; overrides of the policy file are marked."""
    from ferroscope.api.auth.policy import RULES, overrides

    given = overrides(_policy_file(files))
    rows = [
        {
            "name": rule.name,
            "check": given.get(rule.name, rule.check),
            "overridden": rule.name in given,
            "description": rule.description,
        }
        for rule in RULES
    ]
    columns = ("POLICY", "CHECK", "OVERRIDDEN")
    cells = [(row["name"], row["check"] or "everybody", "yes" if row["overridden"] else "") for row in rows]
    Output(fmt).show(rows, lambda console: console.print(table(columns, cells)))


@policy.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, required=True, help="Role of the caller; may be repeated.")
@click.option("--project", help="The caller's project. [default: none; the roles hold for the whole service]")
@click.option("--owner", help="Project that owns the node.")
@click.option("--lessee", help="Project that leases the node.")
@click.option("--lease", help="Name of the lease, for ferroscope:lease policies.")
@config_option
def check(
    name: str,
    roles: tuple[str, ...],
    project: str | None,
    owner: str | None,
    lessee: str | None,
    lease: str | None,
    files: tuple[str, ...],
) -> None:
    """Say whether the policy NAME allows a caller with these roles; exit code 1 if it does not."""
    from ferroscope.api.auth.identity import local
    from ferroscope.api.auth.policy import RULES, Policy, Target
    from ferroscope.runtime.system import SystemClock

    if name not in [rule.name for rule in RULES]:
        raise Failure(f"unknown policy {name}", exit_code=Exit.USAGE, advice="list them with: ferroscope policy list")
    identity = local("caller", "token", roles, project=project)
    target = Target(owner=owner, lessee=lessee, lease=lease)
    if not Policy(SystemClock(), file=_policy_file(files)).allows(name, identity, target):
        click.echo("forbidden")
        raise SystemExit(Exit.FAILURE)
    click.echo("allowed")


@policy.command()
def sample() -> None:
    """Print a policy file with all defaults, each commented out."""
    import json

    from ferroscope.api.auth.policy import RULES

    for rule in RULES:
        click.echo(f"# {rule.description}\n#{json.dumps(rule.name)}: {json.dumps(rule.check)}\n")


def _policy_file(files: tuple[str, ...]) -> str:
    """Return the configured policy file, after a check that it can be used."""
    from ferroscope.runtime.authentication import build_policy
    from ferroscope.runtime.system import SetupError, SystemClock

    settings = settings_of(files)
    try:
        build_policy(settings, SystemClock())
    except SetupError as exc:
        raise Failure(exc.summary, advice=exc.advice) from None
    return settings.oslo_policy.policy_file
