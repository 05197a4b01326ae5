"""Examples in the documentation are what they claim to be: JSON, Python, paths that are served."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from ferroscope.api.http.versions import BARE_METAL, INTROSPECTION, text
from ferroscope.api.routes import ROUTES
from ferroscope.core.reasons import Reason
from ferroscope.db.migrate import HEAD
from tests.fast.docs.pages import Page, page, pages
from tests.support import misses

_CALL = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/[^ ?]*)\Z")

SERVED = {(route.method, route.path) for route in ROUTES}


def _blocks(language: str, sources: Iterable[Page] | None = None) -> Iterator[tuple[Page, str]]:
    for source in pages() if sources is None else sources:
        for block in source.blocks:
            if block.language == language:
                yield source, block.text


def _calls(names: list[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        for span in page(name).spans:
            if match := _CALL.match(span):
                yield name, match[1], match[2]


def test_json_is_json() -> None:
    misses.none(_unread("json", json.loads))


def test_python_is_python() -> None:
    misses.none(_unread("python", lambda block: compile(block, "example", "exec")))


def test_an_example_that_cannot_be_read_is_found() -> None:
    source = Page("docs/x.md", "# X\n\n```json\n{,}\n```\n")
    (miss,) = _unread("json", json.loads, (source,))
    assert miss.startswith("docs/x.md:4: ")


def _unread(language: str, read: Callable[[str], object], sources: Iterable[Page] | None = None) -> Iterator[str]:
    for source, block in _blocks(language, sources):
        try:
            read(block)
        except (ValueError, SyntaxError) as exc:
            yield f"{source.at(block)}: {exc}"


def test_calls_that_are_named_are_served() -> None:
    patterns = [(verb, _pattern(route)) for verb, route in SERVED]
    misses.none(
        f"{page(name).at(f'{method} {path}')}: {method} {path} is not served"
        for name, method, path in _calls([source.name for source in pages()])
        if not any(verb == method and pattern.fullmatch(path) for verb, pattern in patterns)
    )


def test_the_api_reference_names_every_route_and_no_other() -> None:
    named = {(method, path) for _, method, path in _calls(["docs/reference/api.md"])}
    assert named == SERVED


def test_the_api_reference_says_since_when() -> None:
    rows = [row.split("|")[1:-1] for row in page("docs/reference/api.md").text.splitlines() if row.startswith("| `")]
    found = {
        match.groups(): cells[1].strip()
        for cells in rows
        for span in re.findall(r"`([^`]+)`", cells[0])
        if (match := _CALL.match(span)) and len(cells) == 3
    }
    wrong = {
        (route.method, route.path): found[route.method, route.path]
        for route in ROUTES
        if route.since and found[route.method, route.path] != f"1.{route.since}"
    }
    assert not wrong


def test_the_api_reference_has_the_version_ranges() -> None:
    reference = page("docs/reference/api.md").text
    for dialect in (BARE_METAL, INTROSPECTION):
        assert f"{text(dialect.minimum)} to {text(dialect.maximum)}" in reference
        assert f"`{dialect.header}`" in reference


def test_reason_codes_in_the_guide_to_stuck_nodes_exist() -> None:
    spans = page("docs/how-to/find-out-why-a-node-is-stuck.md").spans
    codes = [span for span in spans if span.startswith("lookup-")]
    assert codes
    assert set(codes) <= {str(reason) for reason in Reason}


def test_decisions_are_numbered_and_no_number_is_given_twice() -> None:
    numbers = [
        int(source.name.split("/")[-1].split("-")[0]) for source in pages() if source.name.startswith("docs/adr/")
    ]
    assert numbers[0] == 1
    assert all(after > before for before, after in pairwise(numbers))


def _pattern(route: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", r"[^/]+", re.escape(route)))


def test_versions_in_examples_are_those_of_this_release() -> None:
    found = "\n".join(source.text for source in pages() if "/adr/" not in source.name)
    newest = {text(BARE_METAL.maximum)}
    assert set(re.findall(r"\(API ([0-9.]+)\)", found)) == newest
    assert set(re.findall(r"X-OpenStack-Ironic-API-Version: (1\.[0-9]+)", found)) <= newest
    assert set(re.findall(r"\bschema ([0-9]{4})\b", found)) == {HEAD}


def test_the_access_list_lets_ramdisks_and_bmcs_through() -> None:
    (allowed,) = re.findall(r"http-request deny .*", page("docs/how-to/put-the-api-behind-a-load-balancer.md").text)
    for route in ROUTES:
        if route.ramdisk:
            assert f" {route.path.partition('{')[0]} " in allowed
