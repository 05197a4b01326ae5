"""Examples in the documentation are what they claim to be: JSON, Python, paths that are served."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from ferroscope.api.routes import ROUTES
from tests.fast.docs.pages import Page, page, pages
from tests.support import misses

_CALL = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/[^ ?]*)\Z")

SERVED = {(route.method, route.path) for route in ROUTES}


def _blocks(language: str) -> Iterator[tuple[Page, str]]:
    for source in pages():
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


def _unread(language: str, read: Callable[[str], object]) -> Iterator[str]:
    for source, block in _blocks(language):
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


def _pattern(route: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", r"[^/]+", re.escape(route)))


def test_the_access_list_lets_ramdisks_and_bmcs_through() -> None:
    (allowed,) = re.findall(r"http-request deny .*", page("docs/how-to/put-the-api-behind-a-load-balancer.md").text)
    for route in ROUTES:
        if route.ramdisk:
            assert f" {route.path.partition('{')[0]} " in allowed
