"""A mail server of aiosmtpd, run by Debian's Python: ``server.py PORT CERTIFICATE KEY USER PASSWORD DIRECTORY``.

It offers STARTTLS, and takes mails only after a login over TLS. Each mail is a file in DIRECTORY.
"""

from __future__ import annotations

import ssl
import sys
import threading
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller  # type: ignore[import-not-found]
from aiosmtpd.smtp import AuthResult  # type: ignore[import-not-found]


class Kept:
    """Writes each mail to a file of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  # aiosmtpd's name
        number = len(list(self._directory.iterdir()))
        (self._directory / f"{number}.new").write_bytes(envelope.content)
        (self._directory / f"{number}.new").rename(self._directory / f"{number}.eml")
        return "250 kept"


def main() -> None:
    port, certificate, key, user, password, directory = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: Any, given: Any) -> Any:
        is_right = (given.login, given.password) == (user.encode(), password.encode())
        return AuthResult(success=is_right, handled=False)  # so that the server answers a wrong one

    controller = Controller(
        Kept(Path(directory)),
        hostname="127.0.0.1",
        port=int(port),
        server_hostname="mail.test",
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=authenticate,
    )
    controller.start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
