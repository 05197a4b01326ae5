"""An option is declared once: what oslo.config reads, what code receives and what is documented follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from oslo_config import cfg, types

from ferroscope.config.declaration import Opt, oslo_options
from ferroscope.config.load import load
from ferroscope.config.options import SECTIONS, Settings
from ferroscope.config.sections import options as declared_options
from ferroscope.config.sections import sections


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """``[section]``: one option of each kind."""

    text: Annotated[str, Opt("A text.", regex="^[a-z]*$")] = "abc"
    number: Annotated[float, Opt("A number.", ge=0.5, le=2)] = 1.0
    count: Annotated[int, Opt("A count.", ge=1)] = 3
    switch: Annotated[bool, Opt("A switch.")] = False
    choice: Annotated[Literal["one", "two"], Opt("A choice.")] = "one"
    names: Annotated[tuple[str, ...], Opt("A list.")] = ("a", "b")
    ports: Annotated[tuple[int, ...], Opt("Numbers.", ge=1, le=9)] = ()
    pairs: Annotated[dict[str, str], Opt("A map.")] = {}
    password: Annotated[str, Opt("A secret.", secret=True)] = ""
    lines: Annotated[tuple[str, ...], Opt("Several.", repeated=True)] = ()
    words: Annotated[tuple[str, ...], Opt("A text with other options in it.", type=types.String(), default="$text")] = (
        "abc",
    )


def _read(place: Path, text: str) -> cfg.ConfigOpts.GroupAttr:
    file = place / "f.conf"
    file.write_text(f"[section]\n{text}\n")
    conf = cfg.ConfigOpts()
    conf.register_opts(oslo_options(Section), group="section")
    conf(args=[], default_config_files=[str(file)], default_config_dirs=[])
    return conf.section


def test_each_field_is_an_option_with_its_help_and_default(tmp_path: Path) -> None:
    options = oslo_options(Section)
    assert [option.name for option in options] == list(Section.__struct_fields__)
    assert [option.help for option in options][:2] == ["A text.", "A number."]
    assert [option.name for option in options if option.secret] == ["password"]
    read = _read(tmp_path, "")
    assert (read.text, read.number, read.names, read.pairs, read.lines) == ("abc", 1.0, ["a", "b"], {}, [])
    assert read.words == "abc", "it stands for the option text"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("number = 2", "number", 2.0),
        ("count = 7", "count", 7),
        ("switch = yes", "switch", True),
        ("choice = two", "choice", "two"),
        ("names = x, y", "names", ["x", "y"]),
        ("ports = 3,4", "ports", [3, 4]),
        ("pairs = a:b,c:d", "pairs", {"a": "b", "c": "d"}),
        ("lines = a\nlines = b,c", "lines", ["a", "b,c"]),
    ],
)
def test_a_value_is_read_as_what_the_field_is(tmp_path: Path, line: str, name: str, value: Any) -> None:
    assert getattr(_read(tmp_path, line), name) == value


@pytest.mark.parametrize(
    "line",
    ["text = X1", "number = 0.4", "number = 3", "count = 0", "choice = three", "ports = 3,10", "switch = perhaps"],
)
def test_a_value_outside_the_limits_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(cfg.ConfigSourceValueError):
        getattr(_read(tmp_path, line), line.partition(" ")[0])


def test_a_field_that_declares_no_option_is_a_mistake() -> None:
    class Wrong(msgspec.Struct):
        text: str = ""

    with pytest.raises(TypeError, match="text"):
        oslo_options(Wrong)


def test_no_configuration_at_all_gives_the_defaults_of_the_structs(monkeypatch: pytest.MonkeyPatch) -> None:
    for section, options in declared_options().items():
        for option in options:
            monkeypatch.delenv(f"OS_{section}__{option.name}".upper(), raising=False)
    parts = {name: struct() for name, struct in sections().items() if name not in SECTIONS}
    defaults, settings = Settings(parts=parts), load([])
    settings = msgspec.structs.replace(settings, database=defaults.database)
    settings = msgspec.structs.replace(settings, pxe_filter=defaults.pxe_filter)  # deny, for nothing is discovered
    assert settings == defaults


def test_every_option_has_a_help() -> None:
    bare = [
        f"[{section}] {option.name}"
        for section, options in declared_options().items()
        for option in options
        if not option.help
    ]
    assert not bare
