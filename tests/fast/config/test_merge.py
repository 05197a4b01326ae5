"""Options are added to a configuration file without changing anything else in it."""

from __future__ import annotations

import pytest

from ferroscope.config.merge import MergeError, added_lines, merge_options
from tests.support.rows import each

_FILE = """\
# Of the package.
[api]
host = 10.0.0.1

[boot]
ranges = 10.0.0.50-10.0.0.99,
    10.0.0.150-10.0.0.199
# dnsmasq_options = no

[log]
level = info
"""


def test_a_new_option_goes_to_the_end_of_its_section_and_all_else_stays() -> None:
    text = merge_options(_FILE, {"boot": {"hosts": "boot1"}, "pxe_filter": {"interfaces": "eth1"}})
    lines = text.splitlines()
    added_lines = {"hosts = boot1", "[pxe_filter]", "interfaces = eth1", ""}
    assert [line for line in lines if line not in added_lines] == [line for line in _FILE.splitlines() if line]
    assert lines[lines.index("# dnsmasq_options = no") + 1] == "hosts = boot1"
    assert lines[-2:] == ["[pxe_filter]", "interfaces = eth1"]


def test_what_was_added_is_shown_below_its_sections_and_nothing_else() -> None:
    sections = {"boot": {"hosts": "boot1"}, "api": {"host": "10.0.0.1"}, "pxe_filter": {"interfaces": "eth1"}}
    assert (
        added_lines(_FILE, merge_options(_FILE, sections)) == "[boot]\nhosts = boot1\n[pxe_filter]\ninterfaces = eth1\n"
    )
    assert added_lines(_FILE, _FILE) == ""
    assert added_lines("", "[api]\nhost = ::1\n") == "[api]\nhost = ::1\n"


@each("ranges", ["10.0.0.50-10.0.0.99, 10.0.0.150-10.0.0.199", "10.0.0.50-10.0.0.99,10.0.0.150-10.0.0.199"])
def test_what_is_there_already_changes_nothing(ranges: str) -> None:
    assert merge_options(_FILE, {"boot": {"ranges": ranges}, "api": {"host": "10.0.0.1"}}) == _FILE


def test_merging_twice_is_merging_once() -> None:
    wanted = {"boot": {"http_url": "http://{host}:8080/", "kernel_options": "a$b"}, "new": {"x": "1"}}
    once = merge_options("", wanted)
    assert "kernel_options = a$$b" in once
    assert merge_options(once, wanted) == once


def test_another_value_is_a_conflict_that_is_named() -> None:
    with pytest.raises(MergeError) as raised:
        merge_options(_FILE, {"api": {"host": "::"}, "log": {"level": "debug"}, "boot": {"hosts": "b"}})
    assert len(raised.value.conflicts) == 2
    assert "10.0.0.1" in raised.value.conflicts[0]
