"""An expectation of hardware, as the API takes and shows it. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ferroscope_client.core import labels

Severity = Literal["warning", "failure"]


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition on the machines that ``nodes``, a selector of labels, and ``names``, a pattern, choose.

    ``severity``: a deviation fails the inspection, or is only reported.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    nodes: Annotated[str, msgspec.Meta(max_length=labels.LONGEST_SELECTOR)] = ""
    names: Annotated[str, msgspec.Meta(max_length=255)] = "*"
    severity: Severity = "warning"
    expect: Annotated[list[Annotated[str, msgspec.Meta(max_length=2000)]], msgspec.Meta(min_length=1, max_length=50)]
