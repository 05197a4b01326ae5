"""The golden corpus: each inventory gives the node, ports and plugin data that are written down."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ferroscope.hooks import loader
from tests import ROOT
from tests.corpus import ALL, Case, load
from tests.corpus.catalog import cases
from tests.corpus.compare import explanations, page
from tests.corpus.perform import perform
from tests.support.rows import each

PAGE = ROOT / "docs" / "reference" / "differences-from-ironic.md"
CORPUS = load()


@each("case", CORPUS)
def test_an_inventory_gives_what_is_written_down(case: Case) -> None:
    assert perform(case) == case.expected, case.about


def test_the_stored_cases_are_those_of_the_catalog() -> None:
    written = {case.name: msgspec.structs.replace(case, expected=None) for case in CORPUS}
    assert written == {case.name: msgspec.json.decode(msgspec.json.encode(case), type=Case) for case in cases()}
    assert len(CORPUS) >= 40


def test_every_hook_that_comes_with_the_service_is_in_the_corpus_or_has_a_file_of_tests() -> None:
    shipped = {name for name, point in loader.available().items() if point.value.startswith("ferroscope.")}
    files = {path.stem.removeprefix("test_hook_").replace("_", "-") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(ALL) <= shipped <= {*ALL, *files}


def test_a_refused_inventory_changes_nothing_and_the_reason_is_reported() -> None:
    refused = [case.expected for case in CORPUS if case.expected and case.expected.error]
    assert len(refused) > 10
    assert not any(outcome.properties or outcome.ports or outcome.plugin_data for outcome in refused)


def test_the_page_of_differences_is_that_of_the_explanations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(explanations()), "run: python3 -m tools compare --page"


def test_every_explanation_is_of_a_case() -> None:
    names = {case.name for case in CORPUS}
    for one in explanations():
        assert set(one.cases) <= {*names, "*", "recorded-*"}, one.name
