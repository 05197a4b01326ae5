"""Reads the configuration into ``Settings``: files, environment, checks, and options that do not exist."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec
from oslo_config import cfg

from ferroscope.config.declaration import oslo_options
from ferroscope.config.options import SECTIONS, Settings
from ferroscope.config.service_options import LogLevel

CONFIG_FILES: Final = ("/etc/ferroscope/ferroscope.conf",)
# The state of the system's own service, and the name of SQLite's file there and in a user's own state directory.
STATE_DIRECTORY: Final = Path("/var/lib/ferroscope")
DATABASE_NAME: Final = "ferroscope.db"

# Each section's options, as oslo.config has them.
OPTIONS: Final = {section: oslo_options(struct) for section, struct in SECTIONS.items()}

# What oslo.config and Python say of a value that is wrong.
_DETAIL: Final = re.compile(r"detail='([^']*)'")
_NO_NUMBER: Final = re.compile(r"(?:invalid literal for int\(\) with base \d+|could not convert string to float): (.*)")

# What it quotes of a line that it cannot read may be the second half of a password.
_UNPARSABLE_LINE: Final = re.compile(r": (['\"]).*\1\s*\Z", re.DOTALL)
# Of a URL: who logs in, and the password.
_LOGIN: Final = re.compile(r"//[^/@\s]*:[^/@\s]*@")

_VARIABLE: Final = re.compile(r"OS_([A-Z_]+?)__([A-Z0-9_]+)")

# What one renewal may take, in seconds; a lease that leaves no room for it is lost as soon as it is taken.
_ROOM: Final = 0.5


class ConfigurationError(Exception):
    """The configuration cannot be used; the message says which option, why, and what is possible."""


class UnknownOption(NamedTuple):
    """What does not exist, and what may have been meant."""

    summary: str
    advice: str

    def __str__(self) -> str:
        return f"{self.summary}; {self.advice}"


def load(files: Sequence[str] | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read ``files`` (default: those of ``CONFIG_FILES`` that exist) and return the settings.

    ``overrides`` maps ``section.option`` to a value of the command line. ``ConfigurationError``.
    """
    wanted = _files(files)
    conf = cfg.ConfigOpts()
    for section, options in OPTIONS.items():
        conf.register_opts(options, group=section)
    try:
        conf(args=[], project="ferroscope", default_config_files=wanted, default_config_dirs=[])
        for name, value in (overrides or {}).items():
            section, option = name.split(".", 1)
            conf.set_override(option, value, group=section)
        settings = Settings(**{section: _section(conf[section], section) for section in SECTIONS})
    except cfg.ConfigFilesNotFoundError as exc:
        raise ConfigurationError(f"no such configuration file: {', '.join(exc.config_files)}") from exc
    except (cfg.TemplateSubstitutionError, cfg.NoSuchOptError) as exc:
        raise ConfigurationError(
            f"{exc}; a '$' in a value begins the name of another option: write '$$' for the character itself"
        ) from exc
    except cfg.ConfigFileParseError as exc:
        raise ConfigurationError(_UNPARSABLE_LINE.sub("", str(exc))) from None
    except (cfg.Error, ValueError) as exc:
        raise ConfigurationError(str(exc)) from exc
    if wrong := "; ".join(_problems(settings)):
        raise ConfigurationError(wrong)
    return _resolved(settings)


def unknown_options(files: Sequence[str] | None = None) -> list[UnknownOption]:
    """Return each section, option or variable of ours that does not exist: oslo.config ignores them without a word.

    A warning and no error: while a new release is rolled out, one configuration serves two releases.
    """
    return [*_unknown_in_files(_files(files)), *_unknown_in_environment()]


def files_with_secrets(files: Sequence[str] | None = None) -> list[Path]:
    """Return those of the configuration files that hold a password or another secret."""
    return [Path(file) for file in _files(files) if _holds_secret(_parsed(file))]


def default_database() -> Path:
    """Return SQLite's file of this user: the same one in whatever directory a command is run."""
    if os.geteuid() == 0 or os.access(STATE_DIRECTORY, os.W_OK):
        return STATE_DIRECTORY / DATABASE_NAME
    told = Path(os.environ.get("XDG_STATE_HOME", ""))
    state = told if told.is_absolute() else Path("~/.local/state").expanduser()
    return state / "ferroscope" / DATABASE_NAME


def _files(files: Sequence[str] | None) -> list[str]:
    return [path for path in CONFIG_FILES if Path(path).exists()] if files is None else list(files)


def _parsed(file: str) -> dict[str, dict[str, Any]]:
    """Return what a file says: section -> option -> its values as they are written; nothing where there is none."""
    if not Path(file).is_file():
        return {}
    sections: dict[str, dict[str, Any]] = {}
    cfg.ConfigParser(file, sections).parse()
    return {section: options for section, options in sections.items() if options}


# Values


def _section(group: Any, section: str) -> Any:
    struct = SECTIONS[section]
    values = {option.dest: _value(group, section, option) for option in OPTIONS[section]}
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, tuple):
            values[field.name] = _as_tuple(values[field.name])
    return struct(**values)


def _as_tuple(value: str | list[Any]) -> tuple[Any, ...]:
    """Return a list as code receives it. One that is a text may have the name of another option in it: ``$hooks``."""
    return tuple(value) if isinstance(value, list) else tuple(filter(None, map(str.strip, value.split(","))))


def _value(group: Any, section: str, option: cfg.Opt) -> Any:
    try:
        return getattr(group, option.dest)
    except cfg.ConfigSourceValueError as exc:
        place, why = _place(section, option.dest, str(exc)), str(exc.__context__)
        if found := _NO_NUMBER.search(why):
            why = f"{found[1]} is no number"
        raise ConfigurationError(f"[{section}] {option.dest}: {why} (from {place})") from exc


def _place(section: str, option: str, message: str) -> str:
    """Return where a value comes from: the environment goes before the files, whatever the message says."""
    variable = f"OS_{section}__{option}".upper()
    found = _DETAIL.search(message)
    return variable if variable in os.environ or found is None else found[1]


def _resolved(settings: Settings) -> Settings:
    """Return the settings with what one section leaves to another one."""
    pxe_filter, database = settings.pxe_filter, settings.database
    if pxe_filter.unknown_hosts == "discovery":
        pxe_filter = msgspec.structs.replace(pxe_filter, unknown_hosts=settings.unknown_hosts_by_discovery)
    if not database.connection:
        database = msgspec.structs.replace(database, connection=f"sqlite:///{default_database()}")
    return msgspec.structs.replace(settings, pxe_filter=pxe_filter, database=database)


# Checks of values that are right one by one


def _problems(settings: Settings) -> Iterator[str]:
    """Yield what is wrong: the inequality that does not hold, and the numbers that break it."""
    lease, worker, api = settings.lease.numbers(), settings.worker, settings.api
    least = lease.renew + lease.margin + _ROOM
    if lease.ttl < least:
        yield (
            f"[lease] ttl must be at least renew + margin + {_ROOM:g} s, else nobody leads for long enough to do "
            f"anything; it is {lease.ttl:g}, and they make {least:g}"
        )
    levels = get_args(LogLevel)
    for part, level in settings.log.levels.items():
        if level not in levels:
            yield f"[log] levels: {level!r} of {part} is not a level; expected one of {', '.join(levels)}"
    if worker.member_ttl < 2 * worker.heartbeat_interval:
        yield (
            "[worker] member_ttl must be at least 2 * heartbeat_interval, else a healthy process is considered dead; "
            f"it is {worker.member_ttl:g}, and twice the interval is {2 * worker.heartbeat_interval:g}"
        )
    if api.bare_metal_port and api.bare_metal_port == api.introspection_port:
        yield (
            "[api] bare_metal_port and introspection_port must differ (0 disables one of them); "
            f"both are {api.bare_metal_port}"
        )
    networks = {"[api] trusted_proxies": api.trusted_proxies, "[drivers] bmc_networks": settings.drivers.bmc_networks}
    for option, texts in networks.items():
        for text in texts:
            try:
                ipaddress.ip_network(text)
            except ValueError as exc:
                yield f"{option}: {exc}; expected an address or a network, such as 192.0.2.10 or 10.0.0.0/24"
    if not settings.drivers.ca_directory.startswith("/"):
        yield f"[drivers] ca_directory must be an absolute path; it is {settings.drivers.ca_directory!r}"


# Options that do not exist, and secrets


def _unknown_in_files(files: Iterable[str]) -> Iterator[UnknownOption]:
    for file in files:
        for section, options in _parsed(file).items():
            if section not in SECTIONS:
                yield UnknownOption(f"{file}: there is no section [{section}]", _closest(section, SECTIONS, "[{}]"))
                continue
            for option in options:
                if option not in _names(section):
                    yield _unknown(file, section, option)


def _unknown_in_environment() -> Iterator[UnknownOption]:
    for name in sorted(os.environ):
        found = _VARIABLE.fullmatch(name)
        section, option = (found[1].lower(), found[2].lower()) if found else ("", "")
        if section in SECTIONS and option not in _names(section):
            yield _unknown(name, section, option)


def _names(section: str) -> list[str]:
    return [option.dest for option in OPTIONS[section]]


def _unknown(where: str, section: str, option: str) -> UnknownOption:
    return UnknownOption(f"{where}: [{section}] has no option {option}", _closest(option, _names(section), "{}"))


def _closest(word: str, known: Iterable[str], form: str) -> str:
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {form.format(found[0])}?" if found else "see docs/reference/configuration.md"


def _holds_secret(sections: dict[str, dict[str, Any]]) -> bool:
    secret = {(section, option.dest) for section, options in OPTIONS.items() for option in options if option.secret}
    for section, options in sections.items():
        for option, values in options.items():
            text = " ".join(map(str, values))
            if section == "database" and option == "connection":
                if "@" in text:  # who logs in
                    return True
            elif _LOGIN.search(text) or (text.strip() and (section, option) in secret):
                return True
    return False
