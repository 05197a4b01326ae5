"""Read the configuration into ``Settings``: files, environment, validation.

It is strict: it refuses everything that is unknown or invalid, and reports all of it at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from oslo_config import cfg, iniparser

from ferroscope.config.constraints import problems
from ferroscope.config.options import SECTIONS, Settings
from ferroscope.config.sections import options as declared_options
from ferroscope.config.sections import sections as declared_sections
from ferroscope.config.unknown import UnknownOption, option_variables, read_settings
from ferroscope.config.unknown import unknown_options as _unknown_options
from ferroscope_client.core.home import below_home
from ferroscope_client.core.text_files import NotTextError, lines_of
from ferroscope_client.installed import PluginError

CONFIG_FILES: Final = ("/etc/ferroscope/ferroscope.conf",)
# What 'ferroscope setup' writes: no file of a package or of an operator, so no upgrade has to ask about a change.
SETUP_FILE: Final = f"{CONFIG_FILES[0]}.d/10-setup.conf"
# The state directory of the system service, and the SQLite file's name there and in a user's state directory.
STATE_DIRECTORY: Final = Path("/var/lib/ferroscope")
DATABASE_NAME: Final = "ferroscope.db"

# Python's messages about an invalid number.
_NO_NUMBER: Final = re.compile(r"(?:invalid literal for int\(\) with base \d+|could not convert string to float): (.*)")

# User and password in a URL.
_LOGIN: Final = re.compile(r"//[^/@\s:]*+:[^/@\s]*+@")


class ConfigurationError(Exception):
    """The configuration cannot be used; each of ``problems`` names what is wrong, and what is allowed or meant.

    ``unknown``: some of it is unknown, which only ``lenient`` ignores.
    """

    def __init__(self, *problems: str, unknown: bool = False) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.unknown = unknown


def load(
    files: Sequence[str] | None = None, overrides: dict[str, Any] | None = None, *, lenient: bool = False
) -> Settings:
    """Read ``files`` (default: ``CONFIG_FILES``) with their drop-ins, and return the settings.

    ``overrides`` maps ``section.option`` to a value from the command line. ``ConfigurationError``, also for unknown
    options unless ``lenient``: the file may belong to a newer release.
    """
    return load_exactly(with_drop_ins(files), overrides, lenient=lenient)


def load_exactly(files: Sequence[str], overrides: dict[str, Any] | None = None, *, lenient: bool = False) -> Settings:
    """Return the settings of these files, as ``load``, without drop-ins that are not among them."""
    try:
        declared = declared_sections()
    except PluginError as exc:
        raise ConfigurationError(f"{exc}; {exc.advice}") from exc
    conf = _parsed_by_oslo(files, overrides or {})
    unknown = [] if lenient else [str(option) for option in _unknown_options(files)]
    wrong: list[str] = []
    sections = {section: _section(conf[section], section, files, wrong) for section in declared}
    parts = {section: sections.pop(section) for section in declared if section not in SECTIONS}
    settings = None if wrong else Settings(**sections, parts=parts)
    if settings is not None:
        wrong += problems(settings)
    if settings is None or wrong or unknown:
        raise ConfigurationError(*unknown, *wrong, unknown=bool(unknown))
    return _resolve_defaults(settings)


class _ConfigParser(cfg.ConfigParser):
    """oslo.config's, for files as people write them."""

    def parse(self) -> None:  # type: ignore[override]  # as the class itself has it
        try:
            lines = lines_of(Path(self.filename).read_bytes())
        except NotTextError as exc:
            raise ConfigurationError(f"{self.filename}: {exc}") from None
        iniparser.BaseParser.parse(self, lines)


class _ConfigOptions(cfg.ConfigOpts):
    """oslo.config's, which reads its files with ``_ConfigParser``; there is no public way."""

    files: Sequence[str] = ()

    def _parse_config_files(self) -> Any:
        namespace = super()._parse_config_files()
        for file in self.files:
            _ConfigParser._parse_file(file, namespace)
        return namespace


def _trim_environment() -> None:
    """Remove blanks and line breaks around values, which files do not have either.

    A secret from ``echo`` ends with a line break, and a line of a file from Windows with a carriage return. Kept, they
    would change the meaning of an option, such as the name of a database.
    """
    for name in option_variables() & os.environ.keys():
        if os.environ[name] != (value := os.environ[name].strip()):
            os.environ[name] = value


def _parsed_by_oslo(files: Sequence[str], overrides: dict[str, Any]) -> cfg.ConfigOpts:
    conf = _ConfigOptions()
    conf.files = files
    _trim_environment()
    for section, options in declared_options().items():
        conf.register_opts(options, group=section)
    try:
        conf(args=[], project="ferroscope", default_config_files=[], default_config_dirs=[])
        for name, value in overrides.items():
            section, option = name.split(".", 1)
            conf.set_override(option, value, group=section)
    except cfg.ConfigFilesNotFoundError as exc:
        raise ConfigurationError(f"no such configuration file: {', '.join(exc.config_files)}") from exc
    except cfg.ConfigFileParseError as exc:
        raise ConfigurationError(_without_line(str(exc))) from None
    except (cfg.Error, ValueError, OSError) as exc:
        raise ConfigurationError(str(exc)) from exc
    return conf


def _without_line(error: str) -> str:
    """Return the error without the unparsable line that oslo.config quotes: it may be the second half of a password."""
    quote = error.rstrip()[-1:]
    return error.partition(f": {quote}")[0] if quote in ("'", '"') else error


def unknown_options(files: Sequence[str] | None = None) -> list[UnknownOption]:
    """Return each section, option and environment variable that ``load`` refuses unless it is lenient."""
    return _unknown_options(with_drop_ins(files))


def files_with_secrets(files: Sequence[str] | None = None) -> list[Path]:
    """Return the configuration files that contain a password or another secret."""
    return [Path(file) for file in with_drop_ins(files) if _has_secret(_parse(file))]


def default_database() -> Path:
    """Return this user's SQLite file; it does not depend on the working directory.

    A user without a home directory gets the system service's file, or an error if it cannot be created.
    """
    if os.geteuid() == 0 or os.access(STATE_DIRECTORY, os.W_OK):
        return STATE_DIRECTORY / DATABASE_NAME
    state = below_home("XDG_STATE_HOME", ".local/state", os.environ)
    return STATE_DIRECTORY / DATABASE_NAME if state is None else state / "ferroscope" / DATABASE_NAME


def with_drop_ins(files: Sequence[str] | None) -> list[str]:
    """Return each file (default: ``CONFIG_FILES``), followed by its drop-ins, which override it: FILE.d/*.conf by name.

    A file that is missing is left out if it has drop-ins, or if it is a default.
    """
    listed: list[str] = []
    for file in CONFIG_FILES if files is None else files:
        drop_ins = _drop_ins(Path(f"{file}.d"))
        if Path(file).exists() or (files is not None and not drop_ins):
            listed.append(file)
        listed += drop_ins
    return listed


def _drop_ins(directory: Path) -> list[str]:
    try:
        paths = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise ConfigurationError(f"{directory}: {exc.strerror}") from exc
    return [str(path) for path in paths if path.suffix == ".conf" and not path.name.startswith(".")]


def _parse(file: str) -> dict[str, dict[str, Any]]:
    """Return the contents of a file: section -> option -> its values as written; empty if it does not exist."""
    if not Path(file).is_file():
        return {}
    sections: dict[str, dict[str, Any]] = {}
    _ConfigParser(file, sections).parse()
    return {section: options for section, options in sections.items() if options}


# Values


def _section(group: Any, section: str, files: Sequence[str], wrong: list[str]) -> Any:
    """Return the section's settings; None if a value is invalid, which is added to ``wrong``."""
    struct = declared_sections()[section]
    values: dict[str, Any] = {}
    before = len(wrong)
    for option in declared_options()[section]:
        try:
            values[option.dest] = getattr(group, option.dest)
        except (cfg.Error, ValueError) as exc:
            wrong.append(f"[{section}] {option.dest}: {_reason(exc)}{_place(section, option.dest, files)}")
    if len(wrong) > before:
        return None
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, tuple):
            values[field.name] = _as_tuple(values[field.name])
    return struct(**values)


def _as_tuple(value: str | list[Any]) -> tuple[Any, ...]:
    """Return a list option as a tuple. A list that is read as text may refer to another option: ``$hooks``."""
    return tuple(value) if isinstance(value, list) else tuple(filter(None, map(str.strip, value.split(","))))


def _reason(exc: Exception) -> str:
    """Return the problem of a value, in the words of its type."""
    if isinstance(exc, cfg.TemplateSubstitutionError | cfg.NoSuchOptError):
        return f"{exc}; '$' in a value refers to another option: write '$$' for a literal '$'"
    why = str(exc.__context__ or exc) if isinstance(exc, cfg.ConfigSourceValueError) else str(exc)
    match = _NO_NUMBER.search(why)
    return f"{match[1]} is not a number" if match else why


def _place(section: str, option: str, files: Sequence[str]) -> str:
    """Return where a value comes from: the environment overrides the files."""
    variable = f"OS_{section}__{option}".upper()
    if variable in os.environ:
        return f" (from {variable})"
    lines = [
        f"{file}:{setting.line}"
        for file in files
        for setting in read_settings(file)
        if setting[1:] == (section, option)
    ]
    return f" (from {lines[-1]})" if lines else ""


def _resolve_defaults(settings: Settings) -> Settings:
    """Return the settings with the defaults that depend on other sections or on the user."""
    pxe_filter, database = settings.pxe_filter, settings.database
    if pxe_filter.unknown_hosts == "discovery":
        pxe_filter = msgspec.structs.replace(pxe_filter, unknown_hosts=settings.unknown_hosts_by_discovery)
    if not database.connection:
        database = msgspec.structs.replace(database, connection=f"sqlite:///{default_database()}")
    return msgspec.structs.replace(settings, pxe_filter=pxe_filter, database=database)


# Secrets


def _has_secret(sections: dict[str, dict[str, Any]]) -> bool:
    secret = {
        (section, option.dest) for section, options in declared_options().items() for option in options if option.secret
    }
    for section, options in sections.items():
        for option, values in options.items():
            text = " ".join(map(str, values))
            if section == "database" and option == "connection":
                if ":" in text.partition("//")[2].rpartition("@")[0] or "password=" in text:
                    return True
            elif _LOGIN.search(text) or (text.strip() and (section, option) in secret):
                return True
    return False
