"""Options of secrets: the keys that encrypt those of nodes in the database."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ferroscope.config.declaration import Opt


class SecretSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[secrets]``: encryption of BMC passwords and other secrets of nodes."""

    key_file: Annotated[
        str,
        Opt(
            "File with the keys that encrypt BMC passwords in the database, one per line: the first one encrypts, all "
            "decrypt. A name without '/' is a systemd credential of the service (LoadCredential). Create it with "
            "'ferroscope secret generate-key'. Empty: secrets are stored in plain text."
        ),
    ] = ""
