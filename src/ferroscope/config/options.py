"""The options as operators write them: one oslo.config declaration, from which all else follows.

Sections and names are those of ``settings``; the reference in docs/ is generated from here. An
environment variable ``OS_<SECTION>__<OPTION>`` overrides the file, as oslo.config has it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from oslo_config import cfg

from ferroscope.config import settings as target
from ferroscope.config.contradictions import contradictions
from ferroscope.config.declared import booting, inspection, service, storage
from ferroscope.config.misspelt import Misspelt, misspelt, parsed

S = TypeVar("S", bound=msgspec.Struct)

CONFIG_FILES: Final = ("/etc/ferroscope/ferroscope.conf",)
# The state of the system's own service, and the name of SQLite's file there and in a user's own state directory.
STATE_DIRECTORY: Final = Path("/var/lib/ferroscope")
DATABASE_NAME: Final = "ferroscope.db"

# What oslo.config and Python say of a value that is wrong.
_DETAIL: Final = re.compile(r"detail='([^']*)'")
_NO_NUMBER: Final = re.compile(r"(?:invalid literal for int\(\) with base \d+|could not convert string to float): (.*)")

# What it quotes of a line that it cannot read may be the second half of a password.
_UNPARSABLE_LINE: Final = re.compile(r": (['\"]).*\1\s*\Z", re.DOTALL)
# Of a URL: who logs in, and the password.
_LOGIN: Final = re.compile(r"//[^/@\s]*:[^/@\s]*@")

_HOOK_LISTS: Final = frozenset({"default_hooks", "hooks"})

SECTIONS: Final[dict[str, tuple[Sequence[Any], type[msgspec.Struct]]]] = {
    "api": (service.API, target.ApiSettings),
    "database": (service.DATABASE, target.DatabaseSettings),
    "worker": (service.WORKER, target.WorkerSettings),
    "lease": (service.LEASE, target.LeaseSettings),
    "inspector": (inspection.INSPECTOR, target.InspectorSettings),
    "auto_discovery": (inspection.DISCOVERY, target.DiscoverySettings),
    "inspection_rules": (inspection.INSPECTION_RULES, target.InspectionRuleSettings),
    "storage": (storage.STORAGE, target.StorageSettings),
    "s3": (storage.S3, target.S3Settings),
    "swift": (storage.SWIFT, target.SwiftSettings),
    "registry": (service.REGISTRY, target.RegistrySettings),
    "drivers": (service.DRIVERS, target.DriverSettings),
    "pxe_filter": (booting.PXE_FILTER, target.PxeFilterSettings),
    "boot": (booting.BOOT, target.BootSettings),
    "log": (service.LOG, target.LogSettings),
    "metrics": (service.METRICS, target.MetricsSettings),
}


class ConfigurationError(Exception):
    """The configuration cannot be used; the message says which option, why, and what is possible."""


def load(files: Sequence[str] | None = None, overrides: dict[str, Any] | None = None) -> target.Settings:
    """Read ``files`` (default: those of ``CONFIG_FILES`` that exist) and return the settings.

    ``overrides`` maps ``section.option`` to a value of the command line. ``ConfigurationError``.
    """
    wanted = _files(files)
    conf = cfg.ConfigOpts()
    for section, (options, _) in SECTIONS.items():
        conf.register_opts(options, group=section)
    try:
        conf(args=[], project="ferroscope", default_config_files=wanted, default_config_dirs=[])
        for name, value in (overrides or {}).items():
            section, option = name.split(".", 1)
            conf.set_override(option, value, group=section)
        settings = target.Settings(**{section: _section(conf, section) for section in SECTIONS})
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
    if wrong := "; ".join(contradictions(settings)):
        raise ConfigurationError(wrong)
    return _resolved(settings)


def _resolved(settings: target.Settings) -> target.Settings:
    """Return the settings with what one section leaves to another one."""
    gate, database = settings.pxe_filter, settings.database
    if gate.unknown_hosts == "discovery":
        gate = msgspec.structs.replace(gate, unknown_hosts=target.told_by_discovery(settings))
    if not database.connection:
        database = msgspec.structs.replace(database, connection=f"sqlite:///{default_database()}")
    return msgspec.structs.replace(settings, pxe_filter=gate, database=database)


def default_database() -> Path:
    """Return SQLite's file of this user: the same one in whatever directory a command is run."""
    if os.geteuid() == 0 or os.access(STATE_DIRECTORY, os.W_OK):
        return STATE_DIRECTORY / DATABASE_NAME
    told = Path(os.environ.get("XDG_STATE_HOME", ""))
    state = told if told.is_absolute() else Path("~/.local/state").expanduser()
    return state / "ferroscope" / DATABASE_NAME


def warnings(files: Sequence[str] | None = None) -> list[Misspelt]:
    """Return each section, option or variable of ours that does not exist."""
    known = {section: [option.dest for option in options] for section, (options, _) in SECTIONS.items()}
    return list(misspelt(_files(files), os.environ, known))


def files_with_secrets(files: Sequence[str] | None = None) -> list[Path]:
    """Return those of the configuration files that hold a password or another secret."""
    secret = {
        (section, option.dest) for section, (options, _) in SECTIONS.items() for option in options if option.secret
    }
    return [Path(file) for file in _files(files) if _holds(parsed(file), secret)]


def _holds(sections: dict[str, dict[str, Any]], secret: set[tuple[str, str]]) -> bool:
    for section, options in sections.items():
        for option, values in options.items():
            text = " ".join(map(str, values))
            if section == "database" and option == "connection":
                if "@" in text:  # who logs in
                    return True
            elif _LOGIN.search(text) or (text.strip() and (section, option) in secret):
                return True
    return False


def _files(files: Sequence[str] | None) -> list[str]:
    return [path for path in CONFIG_FILES if Path(path).exists()] if files is None else list(files)


def _section(conf: Any, section: str) -> Any:
    group = conf[section]
    options, struct = SECTIONS[section]
    values = {option.dest: _value(group, section, option) for option in options}
    for name in _HOOK_LISTS.intersection(values):
        values[name] = [hook.strip() for hook in values[name].split(",") if hook.strip()]
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return struct(**known)


def _value(group: Any, section: str, option: Any) -> Any:
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
