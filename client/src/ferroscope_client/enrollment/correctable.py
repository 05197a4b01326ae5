"""Returns a pasted file for correction, without its passwords, so that a typo does not lose the rows. Pure."""

from __future__ import annotations

import csv
import io
import re
from typing import Final

from ferroscope_client.core.passwords import is_reference
from ferroscope_client.enrollment.node_file import delimiter_of, header_of

# Names of columns that may have secrets, including misspelled ones.
_SECRET: Final = re.compile(r"pas|pw|secret|token|key|cred", re.IGNORECASE)


def without_secrets(text: str) -> str | None:
    """Return the text with the cells of secrets emptied; None if it may have secrets that cannot be identified.

    A row whose cells do not match the columns keeps only its first cell: its password may be in any cell.
    """
    if not _SECRET.search(text):
        return text
    delimiter = delimiter_of(text)
    if delimiter not in header_of(text) or text.lstrip()[:1] in "{[":
        return None
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    columns = next((row for row in rows if row), [])
    secret = {at for at, name in enumerate(columns) if _SECRET.search(name)}
    if not secret or 0 in secret:
        return None
    output = io.StringIO()
    writer = csv.writer(output, delimiter=delimiter, lineterminator="\n")
    for row in rows:
        if row is columns or not row:
            writer.writerow(row)
        elif len(row) != len(columns):
            writer.writerow(row[:1] + [""] * (len(row) - 1))
        else:
            writer.writerow("" if at in secret and not is_reference(cell) else cell for at, cell in enumerate(row))
    return output.getvalue()
