"""What packages add: nothing takes the place of something else, and a broken package is named, with what to do."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, entry_points

import pytest

from ferroscope.api.http.route import AddedRoutes, join_routes
from ferroscope.api.routes import ROUTES
from ferroscope_client.installed import Command, PluginError, load_all, merge_in_order
from tests import ROOT
from tests.support import misses
from tests.support.rows import each

GROUP = "ferroscope.commands"


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_this_environment_has_the_entry_points_of_this_checkout() -> None:
    """After a change: .venv/bin/python -m pip install --no-deps --no-build-isolation -e ./client -e ."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for group, points in groups.items():
        here = {one.name: one.value for one in entry_points(group=group)}
        misses.none(f"{group}: {name} = {value}" for name, value in points.items() if here.get(name) != value)


def test_what_is_added_is_listed_after_what_it_belongs_to_and_takes_no_name_of_ours() -> None:
    own = {name: Command("a:b", name) for name in ("node", "rule")}
    more = {
        "relay": Command("r:r", "relay", after="node"),
        "below": Command("b:b", "below", after="relay"),
        "node": Command("evil:node", "evil"),
        "last": Command("l:l", "last"),
        "lost": Command("l:l", "lost", after="nothing"),
    }
    found = merge_in_order(own, more)
    assert list(found) == ["node", "relay", "below", "rule", "last", "lost"]
    assert found["node"] is own["node"]


def test_a_package_that_is_installed_twice_counts_once() -> None:
    twice = [point("sync", "ferroscope.contrib.dcim:SYNC")] * 2
    assert list(load_all(GROUP, twice)) == ["sync"]


def test_two_packages_with_one_name_are_both_named() -> None:
    points = [point("relay", "one.relay:RELAY"), point("relay", "other.relay:RELAY")]
    with pytest.raises(
        PluginError, match=r"'relay' to the commands: one\.relay:RELAY and other\.relay:RELAY"
    ) as refused:
        load_all(GROUP, points)
    assert refused.value.advice == "uninstall all but one"


@each("value", ["no_such_package:X", "ferroscope.contrib.dcim:NOTHING"])
def test_a_package_that_cannot_be_loaded_is_named(value: str) -> None:
    with pytest.raises(PluginError, match=f"{value}, which adds 'relay' to the commands, cannot be loaded"):
        load_all(GROUP, [point("relay", value)])


def test_an_added_route_follows_its_neighbour_and_replaces_none() -> None:
    first, second, third = ROUTES[:3]
    more = {"a": AddedRoutes(rows=(third,), after=f"{first.method} {first.path}")}
    assert join_routes((first, second), more) == (first, third, second)
    assert join_routes((first, second), {"a": AddedRoutes(rows=(third,))}) == (first, second, third)
    with pytest.raises(PluginError, match="exists already"):
        join_routes((first, second), {"a": AddedRoutes(rows=(second,))})
    with pytest.raises(PluginError, match="exists already"):
        join_routes((first,), {name: AddedRoutes(rows=(third,)) for name in ("a", "b")})
