"""Options of the audit log."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ferroscope.config.declaration import Opt


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[audit]``: who called the API, and what it changed."""

    enabled: Annotated[
        bool, Opt("Record each API call that changes something, and refused calls (401, 403), in the database.")
    ] = True
    retention_days: Annotated[float, Opt("Days for which audit events are kept; 0: forever.", ge=0)] = 365.0
    log_file: Annotated[
        str,
        Opt(
            "File to which the api also appends each audit event, as a line of JSON in the form of CADF; '-': standard "
            "output. It may be rotated at any time. Empty: none."
        ),
    ] = ""
