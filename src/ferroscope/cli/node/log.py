"""``ferroscope node log``: what the ramdisk logged, taken out of the archive that it sent.

The archive comes from a machine that nobody has to trust: nothing is written under a name that stands in it, and
no more than a few megabytes of it are unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from ferroscope.cli.client import Api, ApiError, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import find, label, node_argument
from ferroscope.cli.output import Output, with_api
from ferroscope.cli.text import clean

_MOST: Final = 32 * 1024 * 1024


@click.command("log")
@node_argument
@click.option("--inspection", metavar="UUID", help="Of this inspection; by default the newest that has a log.")
@click.option("--file", "name", metavar="NAME", help="Only the file of the archive whose name ends with this.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the archive to a file.")
@with_api
def log(api: Api, out: Output, *, ident: str, inspection: str | None, name: str | None, save: Path | None) -> None:
    """Show what the ramdisk logged during an inspection, also a failed one."""
    node = find(api, ident)
    try:
        content = api.fetch(node_path(node["uuid"], "log"), inspection=inspection)
    except ApiError as exc:
        if exc.status != 404:
            raise
        raise Failure(f"{label(node)} has no log: {exc.message}", exit_code=Exit.NOT_FOUND) from None
    if save is not None:
        try:
            save.write_bytes(content)
        except OSError as exc:
            raise Failure(f"cannot write {save}: {exc.strerror}") from None
        out.say(f"saved to {save}")
        return
    files = [(found, text) for found, text in _files(content) if name is None or found.endswith(name)]
    out.show([{"name": found, "text": text} for found, text in files], lambda screen: _draw(screen, files))
    if not files:
        out.say("the log has no such file")


def _files(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the archive; of what is none, the text itself."""
    import io
    import tarfile
    import zlib

    left = _MOST
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r|*") as archive:
            for member in archive:
                left -= member.size
                if left < 0:
                    yield member.name, f"(left out: more than {_MOST} bytes)"
                    return
                if member.isfile() and (file := archive.extractfile(member)) is not None:
                    yield member.name, file.read().decode(errors="replace")
    except (tarfile.TarError, EOFError, OSError, zlib.error):
        if left == _MOST:
            yield "log", content.decode(errors="replace")


def _draw(screen: Any, files: list[tuple[str, str]]) -> None:
    for found, text in files:
        screen.print(clean(found), style="bold")
        for line in text.splitlines():
            screen.print(clean(line), soft_wrap=True, highlight=False, markup=False)
