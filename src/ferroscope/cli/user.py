"""``ferroscope user``: the users of HTTP basic authentication, in an htpasswd file with roles as a third field.

The file is replaced as a whole, so that the api never reads half of it, and keeps its owner and mode. Comments and
the order of lines are kept.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from ferroscope.api.auth.identity import ROLES
from ferroscope.cli.service import config_option, settings_of
from ferroscope.config import foreign
from ferroscope_client.cli.output import Group, Output, list_output_option, output_option, table
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_NAME_RULE: Final = "1 to 64 letters, digits, '.', '_', '@' or '-', not starting with a sign"
_MIN_PASSWORD_CHARACTERS: Final = 8
# bcrypt ignores the bytes after these.
_LONGEST_BYTES: Final = 72
# A hash takes about 0.1 s; the api remembers for a while which passwords were right.
_BCRYPT_ROUNDS: Final = 10
_DEFAULT_ROLE: Final = "reader"
_NEW_MODE: Final = 0o600

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
    with _edit(path) as lines:
        place = _find(lines, name)
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
    with _edit(path) as lines:
        place = _find(lines, name)
        if place is None:
            raise Failure(
                f"user {name} not found in {path}",
                exit_code=Exit.NOT_FOUND,
                advice="list the users: ferroscope user list",
            )
        del lines[place]
        if not any(_name_in(line) for line in lines):
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
    users = [(name, _roles_in(line)) for line in _lines(path) if (name := _name_in(line))]
    out, titles = Output(fmt), ("NAME", "ROLES")
    if not out.rows(titles, users):
        data = {"users": [{"name": name, "roles": roles} for name, roles in users]}
        out.show(data, lambda screen: screen.print(table(titles, users)))
        out.note(many(len(users), "user"))


def check_name(name: str) -> None:
    """``click.BadParameter`` if no user can have this name."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is not a valid name: {_NAME_RULE}", param_hint="NAME")


def put_user(path: Path, name: str, roles: Sequence[str], password: str) -> bool:
    """Add a user to the file, or replace the one of this name; return whether it was added."""
    line = f"{name}:{_hash_password(password)}:{','.join(dict.fromkeys(roles))}"
    with _edit(path) as lines:
        place = _find(lines, name)
        lines[len(lines) if place is None else place :] = [line] if place is None else [line, *lines[place + 1 :]]
    return place is None


def _path(file: Path | None, files: tuple[str, ...]) -> Path:
    """Return the file itself if it is a symbolic link: replacing a link would leave the file as it was."""
    chosen_file = file or settings_of(files).api.http_basic_auth_user_file
    if not chosen_file:
        raise click.UsageError("no htpasswd file: use --file, or set [api] http_basic_auth_user_file")
    _refuse_foreign(Path(chosen_file))
    return Path(os.path.realpath(chosen_file))


def _refuse_foreign(path: Path) -> None:
    """As root, refuse a file that other users could replace by a link."""
    try:
        foreign.refuse(path.parent)
    except PermissionError as exc:
        raise Failure(f"root does not use {path}: {exc.strerror}", exit_code=Exit.USAGE) from exc


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise Failure(
            f"{path} does not exist",
            exit_code=Exit.NOT_FOUND,
            advice=f"add the first user: ferroscope user add NAME --role admin --file {path}",
        )


# The password


def ask_password(text: str = "Password") -> str:
    """Ask for the password twice on a terminal; otherwise read a line from standard input."""
    if is_terminal(sys.stdin):
        password = str(click.prompt(text, hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise Failure(
                "no password: without a terminal, write it to the first line of standard input", exit_code=Exit.USAGE
            )
    if len(password) < _MIN_PASSWORD_CHARACTERS:
        raise Failure(
            f"the password is too short: at least {_MIN_PASSWORD_CHARACTERS} characters", exit_code=Exit.USAGE
        )
    if len(password.encode()) > _LONGEST_BYTES:
        raise Failure(
            f"the password is too long: bcrypt uses only the first {_LONGEST_BYTES} bytes", exit_code=Exit.USAGE
        )
    if "\0" in password:
        raise Failure("the password contains a NUL character", exit_code=Exit.USAGE)
    return password


def _hash_password(password: str) -> str:
    import bcrypt

    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(_BCRYPT_ROUNDS)).decode()


# The file


@contextmanager
def _edit(path: Path) -> Iterator[list[str]]:
    """Yield the lines of the file, and replace the file if they changed; other editors wait meanwhile."""
    with _lock(path.parent):
        lines = _lines(path)
        before = list(lines)
        yield lines
        if lines != before:
            _replace(path, "".join(f"{line}\n" for line in lines))


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Lock the directory: the file is replaced, so a lock on the file would lock the old one."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Write a new file and rename it to ``path``, with owner, group and mode of the old one."""
    _refuse_foreign(path)
    exists = path.exists()
    like = path.stat() if exists else path.parent.stat()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            if os.geteuid() == 0:
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, like.st_mode & 0o777 if exists else _NEW_MODE)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _lines(path: Path) -> list[str]:
    try:
        return text_of(path.read_bytes()).splitlines() if path.exists() else []
    except NotTextError as exc:
        raise Failure(f"{path}: {exc}", exit_code=Exit.USAGE) from None


def _find(lines: list[str], name: str) -> int | None:
    return next((place for place, line in enumerate(lines) if _name_in(line) == name), None)


def _name_in(line: str) -> str:
    """Return the user's name in a line, "" for a comment or an empty line."""
    return "" if line.startswith("#") else line.strip().partition(":")[0]


def _roles_in(line: str) -> list[str]:
    fields = line.strip().split(":", 2)
    return [role.strip() for role in fields[2].split(",")] if len(fields) > 2 and fields[2] else [_DEFAULT_ROLE]


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
