"""Read the configuration into ``Settings``: files, environment, validation, and unknown options."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec
from oslo_config import cfg

from ferroscope.config.declaration import oslo_options
from ferroscope.config.options import SECTIONS, Settings
from ferroscope.config.service_options import ApiSettings, LogLevel
from ferroscope.core import labels

CONFIG_FILES: Final = ("/etc/ferroscope/ferroscope.conf",)
# The state directory of the system service, and the SQLite file's name there and in a user's state directory.
STATE_DIRECTORY: Final = Path("/var/lib/ferroscope")
DATABASE_NAME: Final = "ferroscope.db"

# The options of each section for oslo.config.
OPTIONS: Final = {section: oslo_options(struct) for section, struct in SECTIONS.items()}

# Messages of oslo.config and Python about an invalid value.
_DETAIL: Final = re.compile(r"detail='([^']*)'")
_NO_NUMBER: Final = re.compile(r"(?:invalid literal for int\(\) with base \d+|could not convert string to float): (.*)")

# The part of an unparsable line that oslo.config quotes may be the second half of a password.
_UNPARSABLE_LINE: Final = re.compile(r": (['\"]).*\1\s*\Z", re.DOTALL)
# User and password in a URL.
_LOGIN: Final = re.compile(r"//[^/@\s]*:[^/@\s]*@")

_VARIABLE: Final = re.compile(r"OS_([A-Z_]+?)__([A-Z0-9_]+)")

# Seconds that one renewal may take; a lease too short for it would be lost as soon as it is acquired.
_RENEWAL_SECONDS: Final = 0.5


class ConfigurationError(Exception):
    """The configuration is invalid; the message names the option, the problem, and what is allowed."""


class UnknownOption(NamedTuple):
    """An unknown section or option; ``closest`` is the known one with the most similar name, "" if there is none."""

    summary: str
    closest: str

    @property
    def advice(self) -> str:
        return f"did you mean {self.closest}?" if self.closest else "see docs/reference/configuration.md"

    def __str__(self) -> str:
        return f"{self.summary}; {self.advice}"


def load(files: Sequence[str] | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read ``files`` (default: the existing ones of ``CONFIG_FILES``) and return the settings.

    ``overrides`` maps ``section.option`` to a value from the command line. ``ConfigurationError``.
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
            f"{exc}; '$' in a value refers to another option: write '$$' for a literal '$'"
        ) from exc
    except cfg.ConfigFileParseError as exc:
        raise ConfigurationError(_UNPARSABLE_LINE.sub("", str(exc))) from None
    except (cfg.Error, ValueError) as exc:
        raise ConfigurationError(str(exc)) from exc
    if wrong := "; ".join(_problems(settings)):
        raise ConfigurationError(wrong)
    return _resolved(settings)


def unknown_options(files: Sequence[str] | None = None) -> list[UnknownOption]:
    """Return each unknown section, option or environment variable: oslo.config ignores them silently.

    These are warnings, not errors: during a rolling upgrade, one configuration serves two releases.
    """
    return [*_unknown_in_files(_files(files)), *_unknown_in_environment()]


def files_with_secrets(files: Sequence[str] | None = None) -> list[Path]:
    """Return the configuration files that contain a password or another secret."""
    return [Path(file) for file in _files(files) if _has_secret(_parsed(file))]


def default_database() -> Path:
    """Return this user's SQLite file; it does not depend on the working directory."""
    if os.geteuid() == 0 or os.access(STATE_DIRECTORY, os.W_OK):
        return STATE_DIRECTORY / DATABASE_NAME
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    state = configured if configured.is_absolute() else Path("~/.local/state").expanduser()
    return state / "ferroscope" / DATABASE_NAME


def _files(files: Sequence[str] | None) -> list[str]:
    return [path for path in CONFIG_FILES if Path(path).exists()] if files is None else list(files)


def _parsed(file: str) -> dict[str, dict[str, Any]]:
    """Return the contents of a file: section -> option -> its values as written; empty if it does not exist."""
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
    """Return a list option as a tuple. A list that is read as text may refer to another option: ``$hooks``."""
    return tuple(value) if isinstance(value, list) else tuple(filter(None, map(str.strip, value.split(","))))


def _value(group: Any, section: str, option: cfg.Opt) -> Any:
    try:
        return getattr(group, option.dest)
    except cfg.ConfigSourceValueError as exc:
        place, why = _place(section, option.dest, str(exc)), str(exc.__context__)
        if found := _NO_NUMBER.search(why):
            why = f"{found[1]} is not a number"
        raise ConfigurationError(f"[{section}] {option.dest}: {why} (from {place})") from exc


def _place(section: str, option: str, message: str) -> str:
    """Return where a value comes from: the environment overrides the files, whatever the message says."""
    variable = f"OS_{section}__{option}".upper()
    found = _DETAIL.search(message)
    return variable if variable in os.environ or found is None else found[1]


def _resolved(settings: Settings) -> Settings:
    """Return the settings with the defaults that depend on other sections or on the user."""
    pxe_filter, database = settings.pxe_filter, settings.database
    if pxe_filter.unknown_hosts == "discovery":
        pxe_filter = msgspec.structs.replace(pxe_filter, unknown_hosts=settings.unknown_hosts_by_discovery)
    if not database.connection:
        database = msgspec.structs.replace(database, connection=f"sqlite:///{default_database()}")
    return msgspec.structs.replace(settings, pxe_filter=pxe_filter, database=database)


# Validation across options


def _problems(settings: Settings) -> Iterator[str]:
    """Yield each violated constraint, with the values that violate it."""
    lease, worker, api = settings.lease.numbers(), settings.worker, settings.api
    least = lease.renew + lease.margin + _RENEWAL_SECONDS
    if lease.ttl < least:
        yield (
            f"[lease] ttl is {lease.ttl:g}, but must be at least renew + margin + {_RENEWAL_SECONDS:g} = {least:g} s; "
            "otherwise a leader loses its lease before it can renew it"
        )
    levels = get_args(LogLevel)
    for part, level in settings.log.levels.items():
        if level not in levels:
            yield f"[log] levels: invalid level {level!r} for {part}; expected one of {', '.join(levels)}"
    if worker.member_ttl < 2 * worker.heartbeat_interval:
        yield (
            f"[worker] member_ttl is {worker.member_ttl:g}, but must be at least 2 * heartbeat_interval = "
            f"{2 * worker.heartbeat_interval:g} s; otherwise a healthy process is considered dead"
        )
    if api.bare_metal_port and api.bare_metal_port == api.introspection_port:
        yield (
            f"[api] bare_metal_port and introspection_port are both {api.bare_metal_port}; they must differ "
            "(0 disables one of them)"
        )
    for name, number in api.lease_quotas.items():
        if not number.isdecimal():
            yield f"[api] lease_quotas: {number!r} for {name} is not a number of names"
    yield from _tls_problems(api)
    yield from _forwarding_problems(settings)
    networks = {
        "[api] trusted_proxies": api.trusted_proxies,
        "[drivers] bmc_networks": settings.drivers.bmc_networks,
        "[notifications] networks": settings.notifications.networks,
    }
    for option, texts in networks.items():
        for text in texts:
            try:
                ipaddress.ip_network(text)
            except ValueError as exc:
                yield f"{option}: {exc}; expected an address or a network, such as 192.0.2.10 or 10.0.0.0/24"
    if settings.inspector.reinspect_nodes.strip():
        try:
            labels.selector(settings.inspector.reinspect_nodes)
        except labels.LabelError as exc:
            yield f"[inspector] reinspect_nodes: {exc}"
    if wrong := settings.failover.problem():
        yield wrong
    for check in (settings.notifications.targets, settings.bus.broker):
        try:
            check()
        except ValueError as exc:
            yield str(exc)
    if not settings.bus.tls and (settings.bus.tls_ca_file or settings.bus.tls_certificate_file):
        yield "[bus] TLS files are set, but tls is false"
    if not settings.drivers.ca_directory.startswith("/"):
        yield f"[drivers] ca_directory is {settings.drivers.ca_directory!r}, but must be an absolute path"


def _forwarding_problems(settings: Settings) -> Iterator[str]:
    inspector, url = settings.inspector, settings.inspector.forward_unknown_to
    if not url:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.username or parts.password or parts.query or parts.fragment:
        yield (
            "[inspector] forward_unknown_to is not a URL of the form http://HOST:PORT/v1/continue, without a user, a "
            "password and a query"
        )
    if inspector.forward_concurrency >= settings.api.threads:
        yield (
            f"[inspector] forward_concurrency is {inspector.forward_concurrency}, but must be less than [api] threads "
            f"= {settings.api.threads}; otherwise forwarded callbacks could occupy all threads"
        )
    for option, enabled in (
        ("[auto_discovery] enabled", settings.auto_discovery.enabled),
        ("[inspector] permit_active", inspector.permit_active),
    ):
        if enabled:
            yield f"[inspector] forward_unknown_to and {option} are mutually exclusive: both take unexpected callbacks"


def _tls_problems(api: ApiSettings) -> Iterator[str]:
    if bool(api.tls_certificate_file) != bool(api.tls_key_file):
        missing = "tls_key_file" if api.tls_certificate_file else "tls_certificate_file"
        yield f"[api] {missing} is not set; TLS needs tls_certificate_file and tls_key_file"
    if api.tls_client_roles_file and api.auth_strategy == "noauth":
        yield "[api] tls_client_roles_file is set, but auth_strategy is noauth, so everybody may do everything"
    if api.tls_client_certificates == "off":
        if api.tls_client_roles_file:
            yield "[api] tls_client_roles_file is set, but tls_client_certificates is off"
        return
    if not api.tls:
        yield f"[api] tls_client_certificates is {api.tls_client_certificates}, but tls_certificate_file is not set"
    if not api.tls_client_ca_file:
        yield f"[api] tls_client_certificates is {api.tls_client_certificates}, but tls_client_ca_file is not set"


# Unknown options, and secrets


def _unknown_in_files(files: Iterable[str]) -> Iterator[UnknownOption]:
    for file in files:
        for section, options in _parsed(file).items():
            if section not in SECTIONS:
                yield UnknownOption(f"{file}: unknown section [{section}]", _closest(section, SECTIONS, "[{}]"))
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
    return UnknownOption(f"{where}: unknown option {option} in [{section}]", _closest(option, _names(section), "{}"))


def _closest(word: str, known: Iterable[str], form: str) -> str:
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return form.format(found[0]) if found else ""


def _has_secret(sections: dict[str, dict[str, Any]]) -> bool:
    secret = {(section, option.dest) for section, options in OPTIONS.items() for option in options if option.secret}
    for section, options in sections.items():
        for option, values in options.items():
            text = " ".join(map(str, values))
            if section == "database" and option == "connection":
                if "@" in text:  # user and password
                    return True
            elif _LOGIN.search(text) or (text.strip() and (section, option) in secret):
                return True
    return False
