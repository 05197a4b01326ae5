"""``ferroscope token``: the access tokens of this service. They work on its database, so the first needs no login."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ferroscope.api.auth.identity import ROLES
from ferroscope.cli.service import config_option, database_option, settings_of
from ferroscope.core.credentials import NAME, is_token_name
from ferroscope_client.cli.output import Group, Output, list_output_option, output_option, table
from ferroscope_client.cli.text import ago, span
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from ferroscope.core.credentials import AccessToken


_UNITS: Final = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365 * 86_400.0}
_LIFETIME: Final = re.compile(r"([1-9][0-9]{0,4})([hdwy])")
_KEYS: Final = ("id", "name", "roles", "project", "state", "expires_at", "last_used_at", "created_by")
_TITLES: Final = ("ID", "NAME", "ROLES", "PROJECT", "STATE", "EXPIRES", "LAST USED", "CREATED BY")


class Expiry(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A lifetime in seconds, the end of the last day of validity, or None for ``never``."""

    name = "expiry"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | datetime | None:
        if not isinstance(value, str):
            return None if value is None else float(value)
        if value == "never":
            return None
        if match := _LIFETIME.fullmatch(value):
            return int(match[1]) * _UNITS[match[2]]
        try:
            day = datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            self.fail(f"{value!r} is neither a lifetime such as 12h, 30d or 1y, nor a date such as 2026-12-31", param)
        end = day + timedelta(days=1)
        if end <= datetime.now(UTC):
            self.fail(f"{value} is in the past", param)
        return end


def _name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not is_token_name(value):
        raise click.BadParameter(f"{value!r} is not a valid name: {NAME}")
    return value


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke access tokens of this service, in its database."""


@token.command(epilog="Exit code 4: an active token has this name.")
@click.argument("name", callback=_name)
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, required=True, help="Role; may be repeated.")
@click.option("--project", help="Project whose nodes the roles are for. [default: the whole service]")
@click.option(
    "--expires",
    type=Expiry(),
    default="365d",
    show_default=True,
    metavar="WHEN",
    help="Lifetime, such as 12h, 30d, 8w or 1y, or last day of validity in UTC, such as 2026-12-31; or never.",
)
@config_option
@database_option
@output_option
def create(
    name: str,
    roles: tuple[str, ...],
    project: str | None,
    expires: float | datetime | None,
    files: tuple[str, ...],
    database: str | None,
    fmt: str,
) -> None:
    """Create a token and print it. It is not stored and cannot be shown again."""
    from ferroscope.api.auth import issued as tokens
    from ferroscope.contracts.errors import ConflictError
    from ferroscope.runtime.backend import open_for_command

    lifetime = expires if isinstance(expires, float) else None
    expires_at = expires.timestamp() if isinstance(expires, datetime) else None
    settings = settings_of(files, database)
    with _explain_errors(), open_for_command(settings) as backend:
        try:
            issued = tokens.create(
                backend.store,
                name,
                roles,
                project=project,
                lifetime=lifetime,
                expires_at=expires_at,
                audited=settings.audit.enabled,
            )
        except ConflictError:
            raise Failure(
                f"an active token has the name {name}",
                exit_code=Exit.CONFLICT,
                advice=f"choose another name, or revoke it: ferroscope token revoke {name}",
            ) from None
    record = _as_data(issued.token, issued.token.created_at)
    expiry = f"expires {record['expires_at']}" if record["expires_at"] else "does not expire"
    click.echo(f"token {name} (ID {issued.token.id}) {expiry}; keep it safe, it cannot be shown again", err=True)
    Output(fmt).show({"token": issued.text} | record, lambda _: click.echo(issued.text))


@token.command("list")
@click.option("--all", "everything", is_flag=True, help="Also show expired and revoked tokens.")
@config_option
@database_option
@list_output_option
def list_tokens(everything: bool, files: tuple[str, ...], database: str | None, fmt: str) -> None:
    """List the active tokens. Expired and revoked ones are deleted after 90 days."""
    from ferroscope.api.auth.issued import read_tokens
    from ferroscope.runtime.backend import open_for_command

    with _explain_errors(), open_for_command(settings_of(files, database)) as backend:
        tokens, now = read_tokens(backend.store)
    shown = [_as_data(token, now) for token in tokens if everything or token.state(now) == "active"]
    out = Output(fmt)
    if out.rows(_TITLES, ([record[key] for key in _KEYS] for record in shown)):
        return
    rows = [_row(record, datetime.fromtimestamp(now, UTC)) for record in shown]
    out.show({"tokens": shown}, lambda screen: screen.print(table(_TITLES, rows)))


@token.command(epilog="Exit code 3: no active token has this ID or name.")
@click.argument("ident", metavar="ID|NAME")
@config_option
@database_option
def revoke(ident: str, files: tuple[str, ...], database: str | None) -> None:
    """Revoke a token. All api processes refuse it within 10 seconds."""
    from ferroscope.api.auth import issued
    from ferroscope.contracts.errors import NotFoundError
    from ferroscope.runtime.backend import open_for_command

    settings = settings_of(files, database)
    with _explain_errors(), open_for_command(settings) as backend:
        try:
            revoked = issued.revoke(backend.store, ident, audited=settings.audit.enabled)
        except NotFoundError:
            raise Failure(
                f"no active token has the ID or name {ident}",
                exit_code=Exit.NOT_FOUND,
                advice="list the tokens: ferroscope token list --all",
            ) from None
    click.echo(f"token {revoked.name} (ID {revoked.id}) is revoked; it is refused within 10 seconds")


@contextmanager
def _explain_errors() -> Iterator[None]:
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreError

    try:
        yield
    except StoreError as exc:
        raise Failure(str(exc), exit_code=Exit.UNREACHABLE) from exc
    except SetupError as exc:
        raise click.ClickException(str(exc)) from exc


def _as_data(token: AccessToken, now: float) -> dict[str, Any]:
    """Return a token for programs, without its digest."""
    return {
        "id": token.id,
        "name": token.name,
        "roles": token.roles,
        "project": token.project,
        "state": token.state(now),
        "created_at": _iso(token.created_at),
        "created_by": token.created_by,
        "expires_at": _iso(token.expires_at),
        "revoked_at": _iso(token.revoked_at),
        "last_used_at": _iso(token.last_used_at),
    }


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).isoformat()


def _row(record: dict[str, Any], now: datetime) -> tuple[Any, ...]:
    expires = record["expires_at"]
    left = (datetime.fromisoformat(expires) - now).total_seconds() if expires else 0.0
    when = "never" if not expires else f"in {span(left)}" if left > 0 else ago(expires, now=now)
    return (
        record["id"],
        record["name"],
        record["roles"],
        record["project"],
        record["state"],
        when,
        ago(record["last_used_at"], now=now) or "never",
        record["created_by"],
    )


@click.group(cls=Group)
def secret() -> None:
    """Manage the keys that encrypt BMC passwords in the database."""


@secret.command("generate-key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--add", is_flag=True, help="Append a key to an existing file; it decrypts, but does not encrypt yet.")
def generate_key(file: Path, *, add: bool) -> None:
    """Create a key file, readable by its owner only, or append a key to one.

    The key itself is never shown. Back up the file: without it, encrypted passwords are lost.
    """
    from ferroscope.config.followed import ConfigFileError
    from ferroscope.secrets.keys import new_key, parse

    line = new_key()
    try:
        if add:
            parse(file.read_text(encoding="ascii"))
            flags = os.O_WRONLY | os.O_APPEND
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(file, flags, 0o600), "w", encoding="ascii") as stream:
            stream.write(f"{line}\n")
            stream.flush()
            os.fsync(stream.fileno())
        keys = parse(file.read_text(encoding="ascii"))
    except FileExistsError:
        raise click.ClickException(f"{file} already exists; to append a key to it, use --add") from None
    except ConfigFileError as exc:
        raise click.ClickException(f"{file}: {exc}; {exc.advice}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise click.ClickException(f"{file}: {getattr(exc, 'strerror', None) or 'not a key file'}") from exc
    click.echo(f"{file}: key {keys[-1].id} {'appended' if add else 'created'}")
