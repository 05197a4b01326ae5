"""``ferroscope user``: the users of HTTP basic authentication; ``ferroscope policy``: who may do what."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ferroscope.api.auth.identity import ROLES
from ferroscope.cli.service import config_option, settings_of
from ferroscope.cli.user_file import (
    ask_password,
    check_name,
    edit_users,
    find_user,
    name_in,
    put_user,
    read_lines,
    refuse_foreign,
    roles_in,
)
from ferroscope_client.cli.output import Group, Output, list_output_option, output_option, table
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

file_option = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The htpasswd file. [default: [api] http_basic_auth_user_file]",
)


@click.group(cls=Group)
def user() -> None:
    """Add, list and remove users of HTTP basic authentication."""


@user.command(epilog="Exit code 4: the user already exists.")
@click.argument("name")
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, required=True, help="Role; may be repeated.")
@click.option("--replace", is_flag=True, help="Replace password and roles of an existing user.")
@file_option
@config_option
def add(name: str, roles: tuple[str, ...], file: Path | None, files: tuple[str, ...], *, replace: bool) -> None:
    """Add a user. The password is asked for on a terminal, and read from standard input elsewhere."""
    check_name(name)
    path = _path(file, files)
    with edit_users(path) as lines:
        place = find_user(lines, name)
        if place is not None and not replace:
            raise Failure(
                f"user {name} already exists in {path}",
                exit_code=Exit.CONFLICT,
                advice="to change password and roles: --replace",
            )
    # The lock is not held while the user types.
    password, is_new = ask_password(), not path.exists()
    is_added = put_user(path, name, roles, password)
    click.echo(f"user {name} {'added to' if is_added else 'changed in'} {path}")
    if is_new and os.geteuid() == 0:
        click.echo(f"the service must be able to read it: chown ferroscope {path}", err=True)


@user.command(epilog="Exit code 3: the user does not exist.")
@click.argument("name")
@file_option
@config_option
def remove(name: str, file: Path | None, files: tuple[str, ...]) -> None:
    """Remove a user. The api refuses the user's password within seconds."""
    path = _path(file, files)
    _check_exists(path)
    with edit_users(path) as lines:
        place = find_user(lines, name)
        if place is None:
            raise Failure(
                f"user {name} not found in {path}",
                exit_code=Exit.NOT_FOUND,
                advice="list the users: ferroscope user list",
            )
        del lines[place]
        if not any(name_in(line) for line in lines):
            raise Failure(
                f"{name} is the only user in {path}, and the api rejects a file without users",
                exit_code=Exit.CONFLICT,
                advice="add another user first: ferroscope user add NAME --role admin",
            )
    click.echo(f"user {name} removed from {path}")


@user.command("list")
@file_option
@config_option
@list_output_option
def list_users(file: Path | None, files: tuple[str, ...], fmt: str) -> None:
    """List the users and their roles."""
    path = _path(file, files)
    _check_exists(path)
    users = [(name, roles_in(line)) for line in read_lines(path) if (name := name_in(line))]
    out, titles = Output(fmt), ("NAME", "ROLES")
    if not out.rows(titles, users):
        data = {"users": [{"name": name, "roles": roles} for name, roles in users]}
        out.show(data, lambda screen: screen.print(table(titles, users)))
        out.note(many(len(users), "user"))


def _path(file: Path | None, files: tuple[str, ...]) -> Path:
    """Return the file itself if it is a symbolic link: replacing a link would leave the file as it was."""
    chosen_file = file or settings_of(files).api.http_basic_auth_user_file
    if not chosen_file:
        raise click.UsageError("no htpasswd file: use --file, or set [api] http_basic_auth_user_file")
    refuse_foreign(Path(chosen_file))
    return Path(os.path.realpath(chosen_file))


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise Failure(
            f"{path} does not exist",
            exit_code=Exit.NOT_FOUND,
            advice=f"add the first user: ferroscope user add NAME --role admin --file {path}",
        )


@click.group(cls=Group)
def policy() -> None:
    """Show who may do what, and check the policy file."""


@policy.command("list")
@config_option
@output_option
def list_policies(files: tuple[str, ...], fmt: str) -> None:
    """List the policies with their checks; overrides of the policy file are marked."""
    from ferroscope.api.auth.policy import RULES, overrides, unknown_policies

    overrides_by_name = overrides(_policy_file(files))
    for name in unknown_policies(overrides_by_name):
        click.echo(f"note: the file has a policy that decides nothing here: {name}", err=True)
    rows = [
        {
            "name": rule.name,
            "check": overrides_by_name.get(rule.name, rule.check),
            "overridden": rule.name in overrides_by_name,
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
    """Check whether the policy NAME allows a caller with these roles; exit code 1 if it does not."""
    from ferroscope.api.auth.identity import local
    from ferroscope.api.auth.policy import RULES, Policy, PolicyTarget
    from ferroscope.runtime.system import SystemClock

    if name not in [rule.name for rule in RULES]:
        raise Failure(f"unknown policy {name}", exit_code=Exit.USAGE, advice="list them with: ferroscope policy list")
    identity = local("caller", "token", roles, project=project)
    target = PolicyTarget(owner=owner, lessee=lessee, lease=lease)
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
    from ferroscope.api.auth.configured import build_policy
    from ferroscope.config.errors import SetupError
    from ferroscope.runtime.system import SystemClock

    settings = settings_of(files)
    try:
        build_policy(settings, SystemClock())
    except SetupError as exc:
        raise Failure(exc.summary, advice=exc.advice) from None
    return settings.oslo_policy.policy_file
