"""The query language: what is understood, and how what is not is refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferroscope.hardware.expressions import All, Any, Count, Glob, Known, Not, Number, Own, Some, Text, Word, matches
from ferroscope.hardware.query import MAX_LENGTH, QueryError, parse
from ferroscope.hardware.search_index import IndexRow, fold
from ferroscope.hardware.sources import spellings
from ferroscope_client.core.node import NODE_FIELDS
from ferroscope_client.hardware.search_fields import KINDS, OWN, fields
from tests.support import examples
from tests.support.rows import each

GIB = float(2**30)


@each(
    ("text", "meaning"),
    [
        ("memory_gb >= 512", Some("node", Number("n1", ">=", 512 * GIB))),
        ("memory >= 1.5TiB", Some("node", Number("n1", ">=", 1.5 * 2**40))),
        ("nic.speed >= 25G", Some("nic", Number("n1", ">=", 25e9))),
        ("vendor = 'Dell  Inc.'", Some("node", Text("t1", spellings("dell inc.")))),
        ("nic.vendor == 0x15B3", Some("nic", Text("t3", spellings("mellanox")))),
        ("nic.vendor != intel", Some("nic", Text("t3", spellings("intel"), negated=True))),
        ("product ~ *R740*", Some("node", Glob("t2", "*r740*"))),
        ("cpu.arch in (x86_64, aarch64)", Some("cpu", Text("t2", ("x86_64", "aarch64")))),
        ("nic.link == up", Some("nic", Number("n2", "==", 1.0))),
        ("has gpu", Some("gpu")),
        ("has nic.switch", Some("nic", Known("t6"))),
        ("count(disk) == 4", Count(Some("disk"), "==", 4.0)),
        ("NOT has gpu", Not(Some("gpu"))),
        ("nic.mac == 00:62:0b:4b:cb:63", Some("nic", Text("t2", ("00:62:0b:4b:cb:63",)))),
        (
            "nic[speed >= 25G and vendor == intel]",
            Some("nic", All((Number("n1", ">=", 25e9), Text("t3", spellings("intel"))))),
        ),
        ("has gpu or has nic and has disk", Any((Some("gpu"), All((Some("nic"), Some("disk")))))),
        ("state == Available", Own(Text("provision_state", ("available",)))),
        ("state == inspect-failed", Own(Text("provision_state", ("inspect failed",)))),
        ("state ~ inspect-*", Own(Glob("provision_state", "inspect *"))),
        ("power == on", Own(Text("power_state", ("power on",)))),
        ("reason == timeout", Own(Glob("last_error", "*(timeout)*"))),
        ("reason != timeout", Own(All((Known("last_error"), Not(Glob("last_error", "*(timeout)*")))))),
        (
            "reason in (timeout, aborted)",
            Own(Any((Glob("last_error", "*(timeout)*"), Glob("last_error", "*(aborted)*")))),
        ),
        ("reason ~ bmc-*", Own(Glob("last_error", "*(bmc-*)*"))),
        ("maintenance == yes", Own(Number("maintenance", "==", 1.0))),
        ("not has owner", Not(Own(Known("owner")))),
        ("created < 1970-01-02", Own(Number("created_at", "<", 86400.0))),
        ("inspected >= 1970-01-01T00:01:00+00:00", Own(Number("inspection_finished_at", ">=", 60.0))),
        ("9YPX7M2", Word("9ypx7m2")),
        ("Dell R740", All((Word("dell"), Word("r740")))),
        ("'PowerEdge  R740' or 10.0.0.5", Any((Word("poweredge r740"), Word("10.0.0.5")))),
        ("(has gpu or has nic) and has disk", All((Any((Some("gpu"), Some("nic"))), Some("disk")))),
    ],
)
def test_understood(text: str, meaning: object) -> None:
    assert parse(text) == meaning


@each(
    ("text", "complaint"),
    [
        ("", "expected a field, found the end"),
        ("created > yesterday", "created: expected a time"),
        ("maintenance == perhaps", "yes or no"),
        ("state > available", "is text"),
        ("a b c d e f", "bare words"),
        ("''", "empty quotation marks"),
        ("product == poweredge r740", "expected 'and', 'or' or the end"),
        ("memry > 3", "memry; did you mean memory"),
        ("zzzz > 3", "zzzz; known are name, uuid, state"),
        ("state == inspect-faild", "unknown value 'inspect-faild' for state; did you mean 'inspect failed'"),
        ("reason == time-out", "for reason; did you mean timeout"),
        ("reason in (timeout, nonsense)", "'nonsense' for reason"),
        ("nic[foo = 1]", "in nic; .*: name, mac"),
        ("memory_gb >=", "expected a value"),
        ("vendor > 3", "is text"),
        ("memory ~ x", "is a number"),
        ("memory >= many", "memory: expected a number"),
        ("memory >= 3i", "unit in 3i"),
        ("nic.link == maybe", "yes or no"),
        ("count(x) > 3", "expected a kind of part"),
        ("count(nic) ~ 3", "after count"),
        ("(has gpu", r"expected \)"),
        ("nic[link = up", "expected ]"),
        ("'x", "mark: 'x"),
        ("and", "expected a field"),
        ("nic[nic[link = up]]", "field nic in nic"),
        ("product ~ " + "*a" * 6, "asterisks"),
        ("(" * 30 + "has gpu" + ")" * 30, "nested more than"),
        (" or ".join(["has gpu"] * 60), "conditions"),
        ("x" * (MAX_LENGTH + 1), "characters"),
    ],
)
def test_refused_with_what_and_where(text: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint) as caught:
        parse(text)
    assert 0 <= caught.value.position <= max(len(text), MAX_LENGTH)


FIELDS = tuple(f"{kind}.{name}" for kind in KINDS for name in KINDS[kind])
KEYWORDS = ("and", "or", "not", "has", "count", "in", "(", ")", "[", "]", ",", "==", "~", ">=")
VALUES = ("25G", "x", "'a b'", "1e9", "-1", "\0", "ä", "*")
words = st.sampled_from((*FIELDS, *KINDS, *KINDS["node"], *KEYWORDS, *VALUES))


@each(
    ("text", "found"),
    [("reason == timeout", True), ("reason == aborted", False), ("reason != aborted", True), ("reason ~ time*", True)],
)
def test_a_reason_is_that_of_the_last_error(text: str, found: bool) -> None:
    node = examples.node(last_error="no callback (timeout). Check PXE boot.")
    assert matches(parse(text), [], node) is found
    assert not matches(parse(text), [], examples.node())


@settings(max_examples=500, deadline=None)
@given(st.lists(words, max_size=25).map(" ".join) | st.text(max_size=200))
@example("not " * 480 + "has gpu")
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    try:
        query = parse(text)
    except QueryError:
        return
    assert matches(query, [IndexRow("node", 0), IndexRow("nic", 0, t1="x")], examples.node()) in (True, False)


def test_folded_texts_stay_as_they_are() -> None:
    for text in ("  Dell   Inc. ", "ÄÖ\tß", "x" * 300, "a\0b", "0x8086"):
        assert fold(fold(text)) == fold(text)


def test_the_reference_lists_every_field() -> None:
    hardware = [name if kind == "node" else f"{kind}.{name}" for kind in KINDS for name in KINDS[kind]]
    assert [written for written, *_ in fields()] == [*hardware, *OWN, "label.KEY"]
    assert not set(hardware) & set(OWN)
    assert {field.column for field in OWN.values()} <= {field.name for field in NODE_FIELDS}


@each(
    ("asked", "stored"),
    [
        ("dell", "Dell Inc."),
        ("Dell Inc.", "Dell"),
        ("hp", "HPE"),
        ("hpe", "Hewlett-Packard"),
        ("supermicro", "Super Micro Computer, Inc."),
        ("intel", "Intel Corporation"),
        ("lenovo", "LENOVO"),
        ("acme", "Acme Corp."),
        ("Samsung", "Samsung Electronics"),
    ],
)
def test_a_maker_is_found_however_its_name_is_written(asked: str, stored: str) -> None:
    row = IndexRow("node", 0, t1=fold(stored, vendor=True))
    assert matches(parse(f"vendor == '{asked}'"), [row], examples.node())
    assert not matches(parse(f"vendor != '{asked}'"), [row], examples.node())
    assert not matches(parse("vendor == other"), [row], examples.node())
