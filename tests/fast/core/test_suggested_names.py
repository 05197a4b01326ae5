"""The name that is suggested for a discovered machine: from its serial number, unless that says nothing."""

from __future__ import annotations

from ferroscope_client.hardware.names import suggestion
from tests.support.rows import each


@each(
    ("serial", "name"),
    [
        ("9YPX7M2", "9ypx7m2"),
        ("CN 7016/3A", "cn-7016-3a"),
        ("00000000", None),
        ("xxxxxxx", None),
        ("", None),
        (None, None),
    ],
)
def test_a_placeholder_is_no_name(serial: str | None, name: str | None) -> None:
    assert suggestion(serial) == name
