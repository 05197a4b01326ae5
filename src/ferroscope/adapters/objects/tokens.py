"""What a log-in to Swift gives, and whether the configuration has all that one needs."""

from __future__ import annotations

import msgspec

from ferroscope.config.options import SwiftSettings


class Access(msgspec.Struct, frozen=True):
    """A token, and the account's address."""

    token: str
    url: str

    def __repr__(self) -> str:
        return f"Access({self.url})"


def problem(swift: SwiftSettings) -> str | None:
    """Return what ``[swift]`` lacks for a log-in, in a sentence, or None. Asks nobody."""
    if swift.application_credential_id or swift.application_credential_secret:
        return _problem_of_application_credential(swift)
    needed = {"username": swift.username, "password": swift.password}
    if swift.auth_version != "1":
        needed["project_name"] = swift.project_name
    missing = [name for name, value in needed.items() if not value]
    return f"[swift] needs {' and '.join(missing)} too, or an application credential" if missing else None


def _problem_of_application_credential(swift: SwiftSettings) -> str | None:
    if swift.auth_version == "1":
        return "[swift] application credentials are Keystone's; set auth_version to 3, or remove them"
    if not (swift.application_credential_id and swift.application_credential_secret):
        return "[swift] needs both application_credential_id and application_credential_secret"
    if swift.username or swift.password:
        return "[swift] has an application credential, so remove username and password: it stands for them"
    return None
