"""No text of a machine becomes a formula in a spreadsheet, whichever sign its country separates cells with."""

from __future__ import annotations

import csv
import io

from ferroscope_client.core.values import spreadsheet_cell
from tests.support.rows import each

HOSTILE = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\uff1d1+1",
    "x;=HYPERLINK(A1)",
    "x;-2+3+cmd|' /C calc'!A1",
    "x; =1",
    'x;"=1',
    "x\n=1",
    "x\t@SUM(A1)",
    "a, b;=1",
    "a\n\n;;=1",
]


@each("text", HOSTILE)
@each("delimiter", [",", ";"])
def test_no_cell_begins_as_a_formula(text: str, delimiter: str) -> None:
    stream = io.StringIO()
    csv.writer(stream).writerow(["node", spreadsheet_cell(text), "end"])
    # As a spreadsheet that separates by this sign reads it: what does not begin with a quotation mark is not quoted.
    rows = csv.reader(io.StringIO(stream.getvalue(), newline=""), delimiter=delimiter)
    for cell in (cell for row in rows for cell in row):
        assert cell.lstrip(" \"'")[:1] not in set("=@+\uff1d") or cell.lstrip(' "').startswith("'"), cell
        assert not cell.startswith("-"), cell


@each("text", ["rack=r1;a-b", "2 x 32 GiB; -5 C; +3", "DIMM A1", "a, -b", "x;+1"])
def test_a_usual_text_stays_as_it_is(text: str) -> None:
    assert spreadsheet_cell(text) == text


def test_other_values_stay_as_they_are() -> None:
    assert spreadsheet_cell(None) == ""
    assert spreadsheet_cell(-5) == -5
