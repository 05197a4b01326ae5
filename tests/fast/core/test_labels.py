"""Labels and their selectors mean what they mean in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope_client.core import labels
from ferroscope_client.core.labels import LabelError
from tests.support.rows import each

NODE = {"rack": "r1", "role": "web", "spare": "", "example.com/rack": "R_1.a"}


@each(
    ("selector", "fits"),
    [
        ("rack=r1", True),
        ("rack==r1", True),
        ("rack = r2", False),
        ("rack=R1", False),
        ("rack!=r2", True),
        ("rack!=r1", False),
        ("site!=north", True),
        ("rack=r1,role!=db", True),
        ("rack=r1,role=db", False),
        ("spare", True),
        ("spare=", True),
        ("rack=", False),
        ("!spare", False),
        ("! site", True),
        ("site", False),
        ("rack in (r1, r2),role in (web)", True),
        ("rack in (r2,r3)", False),
        ("rack notin (r2,r3)", True),
        ("rack notin (r1)", False),
        ("site notin (north)", True),
        ("example.com/rack=R_1.a", True),
    ],
)
def test_a_selector_chooses_by_labels(selector: str, fits: bool) -> None:
    assert labels.selector(selector).fits(NODE) is fits


def test_a_node_without_labels_fits_only_what_asks_for_none() -> None:
    assert labels.selector("rack!=r1,!spare").fits(None)
    assert not labels.selector("rack").fits({})


@each(
    "selector",
    [
        "", ",", "rack=r1,", "=r1", "rack=r1=r2", "rack=a b", "rack in r1", "rack in (r1", "rack in", "!rack=r1",
        "rack=-r1", "rack=" + "x" * 64, "x" * 64, "a/b/c", "/b", "rack" * 600, "rack in (r1,-)", "rück", "rack\n=r1\n(",
    ],
)  # fmt: skip
def test_what_is_no_selector_is_refused(selector: str) -> None:
    with pytest.raises(LabelError):
        labels.selector(selector)


@each(
    "wrong",
    [
        [], "rack=r1", {"rack": 1}, {"rack": None}, {"": "r1"}, {"a b": ""}, {"-a": ""}, {"a": "-"}, {"rack": "r1\n"},
        {"Rack": "", "rack": ""}, {str(number): "" for number in range(65)}, {"x" * 254 + "/a": ""}, {"rack\n": ""},
    ],
)  # fmt: skip
def test_labels_that_cannot_be_are_reported(wrong: Any) -> None:
    assert labels.problem(wrong)


keys = st.from_regex(labels._KEY, fullmatch=True)
values = st.just("") | st.from_regex(labels._VALUE, fullmatch=True)


@given(st.dictionaries(keys, values, max_size=5))
def test_labels_as_written_are_the_selector_of_nodes_that_have_them(given_labels: dict[str, str]) -> None:
    kept = {key.lower(): value for key, value in given_labels.items() if labels.is_key(key.lower())}
    assert labels.problem(kept) is None
    if kept:
        written = labels.format_labels(kept)
        assert dict(labels.pair(one) for one in written.split(",")) == kept
        assert labels.selector(written).fits(kept | {"more": "x"})


def test_of_anothers_labels_those_are_kept_that_can_be() -> None:
    assert labels.valid_labels({"rack": "r1", "a b": "", "n": 1}) == {"rack": "r1"}
    assert labels.valid_labels(["rack"]) == {}
