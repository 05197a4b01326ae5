"""What operators may write into ``[inspector] hooks``."""

from __future__ import annotations

from ferroscope.hooks.loader import expand, resolve
from tests.support.rows import each

DEFAULTS = ("ramdisk-error", "ports")


@each(
    ("text", "names"),
    [
        ("$default_hooks", DEFAULTS),
        ("${default_hooks}", DEFAULTS),
        ("early,$default_hooks,late", ("early", *DEFAULTS, "late")),
        (" early , $default_hooks ,", ("early", *DEFAULTS)),
        ("?early,$default_hooks", ("?early", *DEFAULTS)),
        ("memory", ("memory",)),
        ("", ()),
        (("early", "$default_hooks"), ("early", *DEFAULTS)),
        (("early", " late "), ("early", "late")),
    ],
)
def test_the_default_hooks_are_put_where_their_name_stands(text: str | tuple[str, ...], names: tuple[str, ...]) -> None:
    assert expand(text, DEFAULTS) == names


def test_default_hooks_are_not_expanded_twice() -> None:
    assert expand("$default_hooks", ("$default_hooks",)) == ("$default_hooks",)


def test_underscores_mean_dashes_unless_a_hook_has_them_in_its_name() -> None:
    available = {"root-device", "my_hook", "my-hook"}
    assert resolve("root_device", available) == "root-device"
    assert resolve("my_hook", available) == "my_hook"
    assert resolve("your_hook", available) is None
