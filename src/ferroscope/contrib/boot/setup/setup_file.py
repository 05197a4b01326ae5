"""The file that ``ferroscope setup`` writes: never over other settings, and completely or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final, Self

from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.merge import MergeError, added_lines, merge_options
from ferroscope.config.options import Settings
from ferroscope.contrib.boot.setup.apply import keep, kept_at
from ferroscope.runtime.system import service_group
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.errors import Exit, Failure

Sections = dict[str, dict[str, str]]

_HEADER: Final = "# Written by 'ferroscope setup'. All options: ferroscope docs configuration\n"


def old_text(path: Path, *, add: bool, replace: bool) -> tuple[str, Settings | None]:
    """Return the text of the file, and its settings if options shall be added to them (``add``)."""
    if not path.parent.is_dir():
        raise Failure(
            f"the directory {path.parent} does not exist",
            exit_code=Exit.USAGE,
            advice="create it, or choose another file with -c",
        )
    if not os.access(path.parent, os.W_OK):
        raise Failure(
            f"{path.parent} is not writable", exit_code=Exit.USAGE, advice="use sudo, or choose another file with -c"
        )
    if not path.exists():
        return "", None
    try:
        text = text_of(path.read_bytes())
    except NotTextError as exc:
        raise Failure(f"{path}: {exc}", exit_code=Exit.CONFIGURATION) from exc
    set_lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;["]
    if not set_lines or replace:
        return text, None
    if add:
        try:
            return text, load([str(path)])
        except ConfigurationError as exc:
            raise Failure(f"{path}: {exc}", exit_code=Exit.CONFIGURATION) from exc
    raise Failure(
        f"{path} contains settings already",
        exit_code=Exit.CONFLICT,
        advice="edit it, choose another file with -c, or replace it with --replace (it is kept as FILE.old*); to make "
        "this host a boot host with these settings: --boot network --interface NAME",
    )


class Draft:
    """The new valid file beside the old one: ``text`` and ``settings``; removed unless it is installed.

    ``added`` has its new options.
    """

    def __init__(self, path: Path, old: str, sections: Sections, *, replace: bool) -> None:
        self._path, self._replaces = path, replace or bool(old)
        kept = old if old and not replace else ""
        try:
            self.text = merge_options(kept or _HEADER, {name: options for name, options in sections.items() if options})
        except MergeError as exc:
            listed = "".join(f"\n  {conflict}" for conflict in exc.conflicts)
            advice = f"correct {path} first, or give the same answers"
            raise Failure(f"{path} says otherwise:{listed}", exit_code=Exit.CONFLICT, advice=advice) from exc
        self.added = added_lines(kept, self.text)

    def __enter__(self) -> Self:
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        self._temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(self.text)
                stream.flush()
                os.fsync(descriptor)
            self.settings = load([name])
        except ConfigurationError as exc:
            self._temporary.unlink()
            raise Failure(f"nothing was written: {exc}", exit_code=Exit.USAGE) from exc
        return self

    def __exit__(self, *exc: object) -> None:
        self._temporary.unlink(missing_ok=True)

    def install(self) -> None:
        """Replace the file as a whole."""
        if self._path.exists() and self._path.read_bytes() == self.text.encode():
            return
        let_service_read(self._temporary)
        if self._path.exists() and self._replaces:
            keep(self._path, kept_at(self._path.with_name(f"{self._path.name}.old"), self._path.read_bytes()))
        self._temporary.replace(self._path)


def let_service_read(path: Path) -> None:
    """Let the installed service's group read root's file; others cannot, because it contains secrets."""
    group = service_group()
    if group is not None and os.geteuid() == 0:
        os.chown(path, 0, group)
        path.chmod(0o640)
