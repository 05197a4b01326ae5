"""Names of the source on pages exist: paths, modules, classes, functions, and the modules that ``python -m`` runs."""

from __future__ import annotations

from typing import Final

from tests.fast.docs.names import (
    PACKAGE,
    defines,
    is_member,
    is_missing_name,
    is_missing_path,
    wrong_links,
    wrong_modules,
    wrong_names,
)
from tests.fast.docs.pages import Page, pages
from tests.support import misses

PAGES: Final = [source for source in pages() if not source.name.startswith("docs/reference/")]


def test_names_of_the_source_exist() -> None:
    misses.none(miss for source in PAGES for miss in wrong_names(source))


def test_a_link_to_a_function_is_to_the_file_that_has_it() -> None:
    misses.none(miss for source in PAGES for miss in wrong_links(source))


def test_modules_that_are_run_exist() -> None:
    misses.none(miss for source in PAGES for miss in wrong_modules(source))


def test_each_kind_of_wrong_name_is_reported_with_its_line() -> None:
    names = ["worker/no_such.py", "transition.no_such()", "".join(("Nobody", "Has", "This")), "Store.no_such_member"]
    source = Page("docs/x.md", "\n".join(f"`{name}`" for name in names))
    assert [miss.partition(": ")[0] for miss in wrong_names(source)] == [f"docs/x.md:{line}" for line in (1, 2, 3, 4)]
    assert list(wrong_links(Page("docs/x.md", "[`no_such`](../src/ferroscope/transition.py)")))
    assert list(wrong_modules(Page("docs/x.md", "`python -m tools.no_such`")))


def test_names_that_do_not_exist_are_found() -> None:
    assert is_missing_path("worker/no_such.py")
    assert is_missing_path("src/ferroscope/ports/")
    assert is_missing_path("no_such_file.py")
    assert not is_missing_path("core/states.py")
    assert not is_missing_path("/etc/ferroscope/")
    assert is_missing_name("ferroscope.core.states.NoSuch")
    assert not is_member("Store", "no_such")
    assert is_member("Store", "write")
    assert is_missing_name("transition.no_such")
    assert not is_missing_name("transition.start")
    assert defines(PACKAGE / "transition.py", "transition.start")
    assert not defines(PACKAGE / "transition.py", "transition.no_such")
