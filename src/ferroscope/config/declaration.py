"""Declaration of options: the fields of a section's struct, each annotated with its ``Opt``.

The field gives the option's name, type and default; ``Opt`` gives the help and the limits. The options of oslo.config
(``oslo_options``), which read and validate values, and the reference page in docs/ are derived from these.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec
from oslo_config import cfg, types


class Opt(NamedTuple):
    """The properties of an option that its field does not express.

    ``ge`` and ``le`` limit a number, or each number in a list. ``type`` is a type of oslo.config, if the field's type
    does not determine the syntax. ``repeated``: it may be given several times. ``default`` is the default as written
    in a file, if that differs from the field's default.
    """

    help: str
    ge: float | None = None
    le: float | None = None
    regex: str | None = None
    secret: bool = False
    repeated: bool = False
    type: types.ConfigType | None = None
    default: str | None = None


class Gibibytes(types.Integer):
    """A size in GiB; for compatibility with the Bare Metal service, true and false mean 1 and 0."""

    _WORDS: Final = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}

    def __call__(self, value: Any) -> Any:
        word = str(value).strip().lower()
        return super().__call__(self._WORDS.get(word, value))


class Words(types.String):
    """Words separated by spaces, as on a kernel's command line; commas are part of the words."""

    def __call__(self, value: Any) -> Any:
        words = str(super().__call__(value)).split()
        for word in words:
            name = word.partition("=")[0]
            if "," in name or word.endswith(",") or f",{name}=" in word:
                raise ValueError(f"{word!r} is separated by commas; separate the words by spaces")
        return words


class DnsmasqLines(types.String):
    """Lines of dnsmasq's configuration, one or several; commas are part of the lines."""

    def __call__(self, value: Any) -> Any:
        lines = [line.strip() for line in str(super().__call__(value)).splitlines() if line.strip()]
        for line in lines:
            if "," in line.partition("=")[0]:
                raise ValueError(f"{line!r} is separated by commas; write each option on a separate line")
            if len(line) == 1:  # oslo.config splits an environment variable into characters
                raise ValueError(f"{line!r} is not a dnsmasq option; an environment variable cannot set this option")
        return "\n".join(lines)


def oslo_options(section: type[msgspec.Struct]) -> tuple[cfg.Opt, ...]:
    """Return the options that ``section`` declares, in the order of its fields."""
    return tuple(_oslo_option(field) for field in msgspec.structs.fields(section))


def _oslo_option(field: msgspec.structs.FieldInfo) -> cfg.Opt:
    if get_origin(field.type) is not Annotated:
        raise TypeError(f"the field {field.name} has no Opt annotation")
    hint, opt = get_args(field.type)
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    kind: types.ConfigType = opt.type or _oslo_type(get_args(hint)[0] if opt.repeated else hint, opt)
    if isinstance(default, tuple):
        default = list(default) if opt.repeated or isinstance(kind, types.List) else ",".join(default)
    if opt.default is not None:
        default = opt.default
    if opt.repeated:
        return cfg.MultiOpt(field.name, item_type=kind, default=default, help=opt.help, secret=opt.secret)
    return cfg.Opt(field.name, type=kind, default=default, help=opt.help, secret=opt.secret)


def _oslo_type(hint: Any, opt: Opt) -> types.ConfigType:
    """Return the type of oslo.config for a field of type ``hint``."""
    plain = get_origin(hint) or hint
    limits: dict[str, Any] = {"min": opt.ge, "max": opt.le}
    if plain is Literal:
        return types.String(choices=list(get_args(hint)))
    if plain is tuple:
        return types.List(item_type=_oslo_type(get_args(hint)[0], opt))
    if plain is int:
        return types.Integer(**limits)
    if plain is float:
        return types.Float(**limits)
    if plain is str:
        return types.String(regex=opt.regex)
    if plain is dict:
        return types.Dict()
    if plain is bool:
        return types.Boolean()
    raise TypeError(f"unsupported option type {hint}")
