"""The file that ``ferroscope setup`` writes: never over other settings, and completely or not at all.

It may be a drop-in of a configuration, FILE.d/NAME.conf: then FILE and its other drop-ins count as well.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final, Self

from ferroscope.config.load import ConfigurationError, load, load_exactly, with_drop_ins
from ferroscope.config.merge import MergeError, added_lines, merge_options, missing_options
from ferroscope.config.options import Settings
from ferroscope.contrib.boot.setup.apply import keep, kept_at
from ferroscope.runtime.system import service_group
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.errors import Exit, Failure

Sections = dict[str, dict[str, str]]

_HEADER: Final = "# Written by 'ferroscope setup'. All options: ferroscope docs configuration\n"


def main_file(path: Path) -> Path:
    """Return the configuration file that this file, if it is a drop-in, belongs to."""
    in_directory = path.suffix == ".conf" and path.parent.name.endswith(".conf.d")
    return path.parent.with_suffix("") if in_directory else path


def old_text(path: Path, *, add: bool, replace: bool) -> tuple[str, Settings | None]:
    """Return the text of the file, and the settings if options shall be added to them (``add``)."""
    directory = main_file(path).parent
    if not directory.is_dir():
        raise Failure(
            f"the directory {directory} does not exist",
            exit_code=Exit.USAGE,
            advice="create it, or choose another file with -c",
        )
    if not os.access(directory, os.W_OK):
        raise Failure(
            f"{directory} is not writable", exit_code=Exit.USAGE, advice="use sudo, or choose another file with -c"
        )
    text = _text(path)
    set_files = [*([path] if _has_settings(text) else []), *_files_beside(path)]
    if not set_files or replace:
        return text, None
    if add:
        try:
            return text, load([str(main_file(path))])
        except ConfigurationError as exc:
            raise Failure(f"{path}: {exc}", exit_code=Exit.CONFIGURATION) from exc
    raise Failure(
        f"{set_files[0]} contains settings already",
        exit_code=Exit.CONFLICT,
        advice="edit it, choose another file with -c, or replace it with --replace (it is kept as FILE.old*); to make "
        "this host a boot host with these settings: --boot network --interface NAME",
    )


def _files_beside(path: Path) -> list[Path]:
    """Return the other files of the same configuration that have settings."""
    beside = [Path(file) for file in with_drop_ins([str(main_file(path))]) if file != str(path)]
    return [file for file in beside if _has_settings(_text(file))]


def _text(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        return text_of(path.read_bytes())
    except NotTextError as exc:
        raise Failure(f"{path}: {exc}", exit_code=Exit.CONFIGURATION) from exc


def _has_settings(text: str) -> bool:
    return any(line.strip() and line.lstrip()[0] not in "#;[" for line in text.splitlines())


class Draft:
    """The new valid file beside the old one: ``text`` and ``settings``; removed unless it is installed.

    ``added`` has its new options.
    """

    def __init__(self, path: Path, old: str, sections: Sections, *, replace: bool) -> None:
        self._path, self._old, self._replaces = path, old, replace
        self._beside = _files_beside(path)
        kept = "" if replace else old
        missing = {name: options for name, options in sections.items() if options}
        file = path
        try:
            for file in [] if replace else self._beside:
                missing = missing_options(_text(file), missing)
            file = path
            self.text = merge_options(kept or _HEADER, missing) if missing else kept
        except MergeError as exc:
            listed = "".join(f"\n  {conflict}" for conflict in exc.conflicts)
            advice = f"correct {file} first, or give the same answers"
            raise Failure(f"{file} says otherwise:{listed}", exit_code=Exit.CONFLICT, advice=advice) from exc
        self.added = added_lines(kept, self.text)

    def __enter__(self) -> Self:
        main = main_file(self._path)
        descriptor, name = tempfile.mkstemp(dir=main.parent, prefix=f".{self._path.name}.")
        self._temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(self.text)
                stream.flush()
                os.fsync(descriptor)
            files = {self._path: name} | ({} if self._replaces else {file: str(file) for file in self._beside})
            self.settings = load_exactly([files[file] for file in sorted(files, key=lambda file: (file != main, file))])
        except ConfigurationError as exc:
            self._temporary.unlink()
            raise Failure(f"nothing was written: {exc}", exit_code=Exit.USAGE) from exc
        return self

    def __exit__(self, *exc: object) -> None:
        self._temporary.unlink(missing_ok=True)

    def install(self) -> None:
        """Replace the file as a whole."""

        replaced = self._beside if self._replaces else []
        if self.text == self._old and not replaced:
            return
        let_service_read(self._temporary)
        for file in [*([self._path] if self._old else []), *replaced]:
            keep(file, kept_at(file.with_name(f"{file.name}.old"), file.read_bytes()))
        if not self._path.parent.exists():
            self._path.parent.mkdir()
            self._path.parent.chmod(0o755)  # whatever the umask is
        self._temporary.replace(self._path)
        for file in replaced:
            file.unlink()


def let_service_read(path: Path) -> None:
    """Let the installed service's group read root's file; others cannot, because it contains secrets."""
    group = service_group()
    if group is not None and os.geteuid() == 0:
        os.chown(path, 0, group)
        path.chmod(0o640)
