"""``ferroscope secret``: the key file that encrypts secrets of nodes; ``ferroscope db rekey`` applies it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ferroscope.cli.output import Group


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
    from ferroscope.config.followed import FileError
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
    except FileError as exc:
        raise click.ClickException(f"{file}: {exc}; {exc.advice}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise click.ClickException(f"{file}: {getattr(exc, 'strerror', None) or 'not a key file'}") from exc
    click.echo(f"{file}: key {keys[-1].id} {'appended' if add else 'created'}")
