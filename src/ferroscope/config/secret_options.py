"""Options of secrets: the keys that encrypt those of nodes in the database, and the sources of references."""

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
    sources: Annotated[
        tuple[str, ...],
        Opt(
            "Sources of references such as secret://file/rack1/password in driver_info, which workers resolve for each "
            "BMC call: file, env, and those of other installed packages. Empty: references are not resolved."
        ),
    ] = ()
    file_directory: Annotated[
        str,
        Opt(
            "Directory of the source file. Everybody who may set driver_info can send each file below it to a BMC, so "
            "it must hold nothing but passwords of BMCs."
        ),
    ] = ""
    env_prefix: Annotated[
        str, Opt("Prefix of the environment variables of the source env; others are not available.")
    ] = "FERROSCOPE_SECRET_"
    timeout: Annotated[float, Opt("Timeout for resolving a reference, in seconds.", ge=0.1)] = 5.0
    cache_seconds: Annotated[float, Opt("Seconds for which a worker keeps a resolved secret in memory.", ge=0)] = 30.0
